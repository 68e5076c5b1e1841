// Restores: open restores of all sessions, each streamed through windows of its session's arena,
// and those that wait for snapshots.
//
// Loop thread. A restore ends when its client closes it, with its session, or in close(); its reads
// may take longer (closing_jobs.h). A failed restore stays open until its client closes it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "ckptd/history/history.h"
#include "ckptd/loop/turn.h"
#include "ckptd/readers/closing_jobs.h"
#include "ckptd/readers/reader_holds.h"
#include "ckptd/readers/reader_numbers.h"
#include "ckptd/restore/restore.h"
#include "ckptd/sessions/replies.h"
#include "ckptd/sessions/session.h"
#include "ckptd/sources/sources.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

// Snapshots that earlier epochs staged are still being written, while the session is a member of
// this epoch. Restores of its run wait for them.
struct EarlierSnapshots {
  ckpt::Epoch epoch = 0;
  bool epoch_active = false;  // false: the epoch has ended, so nothing waits in it
};

class Restores {
 public:
  struct Needs {
    History& history;
    const Turn& turn;
    const Replies& replies;
    const Sessions& sessions;
    ReaderNumbers& numbers;
    ClosingJobs& closing;
    ReaderHolds& holds;
    Sources& sources;
    std::function<RestoreJobContext()> context;
    std::function<bool()> is_draining;
    std::function<std::optional<EarlierSnapshots>(ckpt::SessionId)> earlier_snapshots;
    std::function<void()> on_reader_gone;
  };
  struct Counters {
    uint64_t opened = 0;
    Time time{};                 // from the request to the last bytes
    SourceBytes bytes;           // that ckptd read
    uint64_t bytes_located = 0;  // that clients read
    uint64_t fallbacks = 0;
  };
  using Jobs = std::vector<std::unique_ptr<RestoreJob>>;

  explicit Restores(Needs needs) : needs_(std::move(needs)) {}
  Restores(const Restores&) = delete;
  Restores& operator=(const Restores&) = delete;

  void open(const Session& session, const ckpt::fb::OpenRestoreT& message);
  void release_window(ckpt::SessionId session, const ckpt::fb::ReleaseWindowT& message);
  void located_read(ckpt::SessionId session, const ckpt::fb::LocatedReadT& message);
  void close(ckpt::SessionId session, const ckpt::fb::CloseRestoreT& message);

  // Cancels reads of slow sources.
  void tick();
  // A snapshot or an epoch has ended, or ckptd drains: waiting restores start, fail or wait on.
  void retry_waiting();
  // Slabs of the session's arena became usable: a restore may have started before that.
  void slabs_ready(ckpt::SessionId session);
  // Forgets the session's restores. The caller closes their jobs with close_lost().
  Jobs session_lost(ckpt::SessionId session);
  // `then` runs after the last read of the jobs; at once if there are none.
  void close_lost(Jobs jobs, const std::function<void()>& then);
  // Closes all restores. Waiting ones get no answer.
  void close_all();

  bool any_open() const;
  const Counters& counters() const { return counters_; }

 private:
  struct Restore {
    uint64_t request = 0;  // of OpenRestore: errors are sent to it
    ReaderNumbers::Reading reading;
    Time since{};
    SourceBytes given;
    std::set<ckpt::UnitId> warned;  // units whose fallback was logged
    std::unique_ptr<RestoreJob> job;
  };
  struct OfSession {
    std::map<uint64_t, Restore> restores;
    std::vector<ckpt::fb::OpenRestoreT> waiting;
  };
  // Null: no such restore is open.
  Restore* find(ckpt::SessionId session, uint64_t id);
  Result<RestoreRequest> resolve(const Session& session, const ckpt::fb::OpenRestoreT& message);
  void start(const Session& session, const ckpt::fb::OpenRestoreT& message);
  Status may_locate(const Session& session, const RestorePlan& plan);
  void on_window(ckpt::SessionId session, uint64_t id, const Result<Window>& window);
  void count(const Window& window, Restore& restore);
  static void warn_of(const Window& window, uint64_t id, Restore& restore);

  const Needs needs_;
  std::map<ckpt::SessionId, OfSession> sessions_;  // from a session's first restore to its end
  uint64_t next_ = 1;
  Counters counters_;
};

}  // namespace ckptd
