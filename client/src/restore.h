// Restore: ranges of a view, lent window by window in the arena. The reader copies the bytes,
// checks them and releases the window: restore_read() below for host memory, libckpt_cuda for GPU
// memory.
//
//   begin -> next -> next ... -> complete -> finish
//             |  ^- released windows are filled again
//             +- the daemon was lost, or bytes did not match: starts over, everything is lent again
//
//   closed -> opening -> open        one attempt with one daemon; next() passes through it without
//     ^----------'-------'           waiting longer than its deadline
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "client/src/session.h"
#include "formats/plan.h"

namespace ckpt::lib {

struct RestoreOptions {
  std::string run;
  LineageId lineage = 0;
  Step step = 0;
  bool latest = false;
  std::string tag;
  bool exact = false;
  bool newest = false;
  bool memory = false;
  uint32_t timeout_ms = 0;        // without any progress
  uint64_t locate_bytes_max = 0;  // see LentWindow::file; 0: never
  bool locate_required = false;   // an error if the daemon does not locate files
};

struct RestoreRange {
  UnitRange range;
  std::byte* data = nullptr;
};

struct RestoredRange {
  LineageId version_lineage = 0;
  Step version_step = 0;
  std::string note;
  uint64_t bytes_memory = 0;
  uint64_t bytes_disk = 0;
  bool memory_only = false;  // on no disk
};

struct RestorePiece {
  size_t range = 0;     // index in the requested ranges
  uint64_t offset = 0;  // from the start of the range
  uint64_t length = 0;
  uint64_t at = 0;  // from the start of the window, or of the file
  uint32_t crc32c = 0;
};

// A fragment to be read and checked whole.
struct RestoreFragment {
  uint64_t file_offset = 0;
  uint64_t length = 0;
  uint32_t crc32c = 0;
  size_t first_piece = 0;
  size_t piece_count = 0;
};

// Result of next().
struct LentWindow {
  uint64_t id = 0;        // 0: no window within the deadline
  bool complete = false;  // all has been lent; id is 0
  ByteView bytes;
  std::vector<RestorePiece> pieces;  // all inside `bytes` and inside their ranges

  // If there is a file, it has the bytes: `bytes` is empty, pieces have no CRC of their own and lie
  // inside the fragments. Fragments are ascending and disjoint, with at most locate_bytes_max bytes
  // of blocks. The window owns the file until its release.
  int file = -1;
  SegmentId segment = 0;
  std::vector<RestoreFragment> fragments;
};

// A Located message and its descriptor.
struct LocatedMessage {
  fb::LocatedT body;
  base::UniqueFd file;
};
using RestoreMessage = std::variant<fb::RestoreWindowT, LocatedMessage>;

// Messages that the session receives for its one restore in progress.
class RestoreInbox {
 public:
  explicit RestoreInbox(Session& session) : session_(session) { session_.set_restore(this); }
  RestoreInbox(const RestoreInbox&) = delete;
  RestoreInbox& operator=(const RestoreInbox&) = delete;
  ~RestoreInbox() { session_.set_restore(nullptr); }

  void take(RestoreMessage window) { windows_.push_back(std::move(window)); }
  bool take_answer(fb::RestoreOpenedT& answer);
  bool take_error(const fb::ErrorReplyT& error);

  // From here on only answers to this OpenRestore count.
  void asked(uint64_t request);
  std::optional<fb::RestoreOpenedT> answer() { return std::exchange(answer_, std::nullopt); }
  std::optional<RestoreMessage> next(uint64_t restore);
  const std::optional<Error>& failure() const { return failure_; }

 private:
  Session& session_;
  uint64_t request_ = 0;
  std::optional<fb::RestoreOpenedT> answer_;
  std::deque<RestoreMessage> windows_;
  std::optional<Error> failure_;
};

// At most one per session at a time; the session outlives it. Unusable after an error.
class Restore {
 public:
  static Result<std::unique_ptr<Restore>> begin(Session& session, RestoreOptions options,
                                                std::vector<UnitRange> ranges);
  ~Restore();  // releases lent windows
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

  // Waits until `until` at most. If several windows bring the same bytes, the last one wins: the
  // view fell back to another version, or the restore has started over. So take windows in order.
  Result<LentWindow> next(const Deadline& until);
  // Returns the window after its bytes were copied: the daemon may reuse the slab.
  void release(uint64_t window);
  // Reports copied bytes that do not match the piece's checksum. The next next() starts over, once;
  // after another mismatch, it fails. A mismatch in a window of an earlier attempt is ignored.
  // Windows with a file have failed fragments instead.
  void mismatch(uint64_t window, const RestorePiece& piece);
  // Reports that a fragment of a window with a file could not be read or does not match: the daemon
  // will read the fragment. Call before release().
  void failed(uint64_t window, size_t fragment, const std::string& reason);
  // Reports that nothing of this window was read; requests no more windows with a file.
  void stop_locating(uint64_t window, const std::string& reason);
  // Why the daemon does not locate files although requested; empty if the daemon does.
  const std::string& not_located() const { return not_located_; }
  // Precondition: complete. Returns the answers, one per range.
  Result<std::vector<RestoredRange>> finish();

 private:
  struct Want {
    size_t range = 0;                                // index in ranges_
    std::vector<std::pair<uint64_t, uint64_t>> got;  // [begin, end) in the unit
    uint32_t versions = 0;                           // versions that have served it so far
  };
  // The parts of wants that a located fragment will fill.
  struct LocatedFragment {
    struct Part {
      size_t want = 0;
      uint32_t version = 0;  // the want's version when the window was sent
      uint64_t begin = 0;
      uint64_t end = 0;
    };
    std::vector<Part> parts;
    bool failed = false;
  };
  struct Lent {
    uint32_t slab = 0;
    base::UniqueFd file;  // instead of a slab
    uint64_t number = 0;  // the daemon's number of a located window
    std::vector<LocatedFragment> fragments;
    bool stop = false;
    std::string reason;
  };
  Restore(Session& session, RestoreOptions options, std::vector<UnitRange> ranges)
      : session_(session),
        options_(std::move(options)),
        ranges_(std::move(ranges)),
        inbox_(session) {}
  enum class Phase { kClosed, kOpening, kOpen };

  Status start_over();
  Status ask();
  Result<bool> opened();
  Status wait_to_open(const Deadline& until);
  Status take_answer(const fb::RestoreOpenedT& answer);
  Status take_refusal(const Error& refusal);
  Result<LentWindow> find_window();
  bool lost() const;
  void close();
  using Notes = std::vector<std::unique_ptr<fb::RestoreNoteT>>;
  Status take_notes(const Notes& notes);
  Status check_range(uint32_t want, uint32_t unit, uint64_t offset, uint64_t length) const;
  Result<RestorePiece> take_piece(const fb::RestoredPiece& piece, uint64_t slab_bytes);
  Result<LentWindow> take_window(const fb::RestoreWindowT& window);
  // restore_located.cc
  Result<LentWindow> take_located(LocatedMessage message);
  Status check_fragments(const fb::LocatedT& located) const;
  Result<RestorePiece> take_part(const fb::LocatedPiece& piece, const fb::LocatedFragment& of,
                                 LocatedFragment& fragment);
  void answer_located(Lent& lent);
  Status check_complete();
  std::string what() const { return fmt::format("run {}: restore", options_.run); }
  std::string name(size_t range) const;

  Session& session_;
  const RestoreOptions options_;
  const std::vector<UnitRange> ranges_;
  RestoreInbox inbox_;

  // State of this attempt: one try with one daemon.
  int attempt_ = 0;
  Phase phase_ = Phase::kClosed;
  Clock::time_point retry_at_{};  // when closed: earliest time of the next request
  uint64_t generation_ = 0;       // of the session
  uint64_t restore_ = 0;          // the daemon's number of the restore; 0: not open
  std::vector<Want> wants_;       // ranges that are not empty
  std::vector<RestoredRange> restored_;
  bool last_ = false;  // the last window has come
  Deadline progress_ = Deadline::now();

  std::string not_located_;

  uint64_t first_window_ = 1;      // of this attempt
  std::map<uint64_t, Lent> lent_;  // of earlier attempts, too

  uint64_t next_window_ = 1;
  std::optional<Error> mismatch_;
  bool read_again_ = false;
};

// Fills every range. If the daemon is lost in the middle, starts over with the next daemon. After
// an error the ranges' bytes are undefined.
Result<std::vector<RestoredRange>> restore_read(Session& session, const RestoreOptions& options,
                                                const std::vector<RestoreRange>& ranges);

}  // namespace ckpt::lib
