// Readers: jobs that read commits for sessions (restores, verifies), and the protection of their
// data: holds of views, and the numbers that garbage collection waits for.
//
// Serves the messages about restores, blobs and holds, and the question `verify`. Loop thread.
// close() starts nothing new and ends all jobs; the caller runs disk, executor and deferred work
// until idle(). After a failed read the jobs decide themselves: a restore falls back to another
// source or an older version, a verify lists the damage.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ckptd/history/history.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/executor.h"
#include "ckptd/loop/turn.h"
#include "ckptd/query/query.h"
#include "ckptd/readers/blob_lists.h"
#include "ckptd/readers/closing_jobs.h"
#include "ckptd/readers/reader_holds.h"
#include "ckptd/readers/reader_numbers.h"
#include "ckptd/readers/restores.h"
#include "ckptd/readers/verifies.h"
#include "ckptd/restore/context.h"
#include "ckptd/sessions/replies.h"
#include "ckptd/sessions/session.h"
#include "ckptd/sources/sources.h"
#include "ckptd/staging/staging.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

class Readers {
 public:
  struct Needs {
    Disk& disk;
    Executor& executor;
    History& history;
    Turn& turn;
    const Replies& replies;
    const Sessions& sessions;
    // Recovery builds both before the first job.
    std::function<Staging&()> staging;
    std::function<SegmentReader&()> segments;
    std::function<bool()> is_draining;
    // nullopt: the session is no member, or no snapshot of an earlier epoch of its run is open.
    std::function<std::optional<EarlierSnapshots>(ckpt::SessionId)> earlier_snapshots;
    // True while deletions of the run's commits are being written to the journal.
    std::function<bool(ckpt::RunId)> removes_commits;
    // A restore or verify has ended: dead space that waited for it may be free.
    std::function<void()> on_reader_gone;
    OnVerified on_verified;
    // A restore met damage in this commit.
    std::function<void(const ckpt::SnapshotKey&)> on_damage;
  };
  explicit Readers(Needs needs);

  // -- messages ----------------------------------------------------------------------------------
  // False: the message is about something else.
  bool handle(const Session& session, const ckpt::fb::MessageT& message);
  // `context` is of the session, for this call only.
  void verify(const Session& session, const ckpt::fb::QueryT& message,
              const QueryContext& context) {
    verifies_.start(session, message, context);
  }

  // -- events ------------------------------------------------------------------------------------
  // Recovery is over: staging and segments exist. Call this once, before the first message.
  void open_sources();
  void tick() {
    holds_.end_overdue();
    restores_.tick();
  }
  // A snapshot or an epoch has ended, or ckptd drains: waiting restores start, fail or wait on.
  void retry_waiting() { restores_.retry_waiting(); }
  // Slabs of the session's arena became usable.
  void slabs_ready(ckpt::SessionId session) { restores_.slabs_ready(session); }
  // The first of two steps when a session is lost: its holds end, and none of its restores
  // continues. Returns its restores for the second step.
  Restores::Jobs session_lost(ckpt::SessionId session);
  // The second step, after the other modules have reacted: closes the session's verifies and these
  // restores. `then` runs when no read into the session's arena is left.
  void close_lost(ckpt::SessionId session, Restores::Jobs restores,
                  const std::function<void()>& then);
  // Ends the holds of commits that root removes by force.
  void end_holds_by_force(const Session& session, const std::function<bool(const Hold&)>& which) {
    holds_.end_by_force(session, which);
  }
  void close();
  bool idle() const { return closing_.empty(); }

  // -- questions ---------------------------------------------------------------------------------
  // For every reader of extents: verifies, scrub, dedup.
  RestoreContext context();
  // Views that no prune may remove, with the reason for messages.
  std::vector<HeldView> held_views(ckpt::RunId run) const { return holds_.views(run); }
  const ReaderNumbers& numbers() const { return numbers_; }
  const Sources& sources() const { return sources_; }
  const Restores& restores() const { return restores_; }
  const Verifies& verifies() const { return verifies_; }
  const ReaderHolds& holds() const { return holds_; }
  const DecodeMeter& decoded() const { return decoded_; }

 private:
  RestoreJobContext restore_context();

  const Needs needs_;
  DecodeMeter decoded_;
  Sources sources_;
  ReaderNumbers numbers_;
  ClosingJobs closing_;
  ReaderHolds holds_;
  Restores restores_;
  BlobLists blob_lists_;
  Verifies verifies_;
};

}  // namespace ckptd
