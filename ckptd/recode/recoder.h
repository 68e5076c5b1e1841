// Recoder: encodes old unencoded bytes in the background, so that they take less disk
// space.
//
//   read and checked, as scrub does -> encoded -> written as another extent of its
// commit -> read back -> synced, then the Moved record durable -> catalog; the old
// extent is then dead, and gc reclaims it like pruned space, once no job can still read
// it
//
// One extent at a time, by commits in the order of their records. Each commit is processed
// once, when it is old enough. An extent moves whole. It stays if part of it is already
// encoded, if another commit references it, if it would not shrink by an eighth, or if it is
// damaged. The catalog keeps the position. A crash at any point leaves at most an extent
// that no record names, which the next startup reclaims, and an extent that is examined
// again.
//
// Rate-limited, and yields to others (scrub/pace.h). Loop thread. The destructor
// asserts that it was closed; a pending record may still complete then, until persist
// is closed.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "ckptd/catalog/catalog.h"
#include "ckptd/codec/slab_encoder.h"
#include "ckptd/io/aligned_buffer.h"
#include "ckptd/persist/persist.h"
#include "ckptd/restore/commit_check.h"
#include "ckptd/restore/extent_reader.h"
#include "ckptd/scrub/pace.h"

namespace ckptd {

class Recoder {
 public:
  struct Options {
    std::chrono::milliseconds after{0};  // minimum age of a commit; 0: never encode
    uint64_t bytes_per_second = 0;       // read and written
    std::function<uint64_t()> wall_clock_ns;
    // True if restores or snapshots use the disk.
    std::function<bool()> others_busy;
    // True if an extent may be started. False during gc and shutdown.
    std::function<bool()> may_begin;
    // True if bytes of the commit may soon be referenced by a snapshot.
    std::function<bool(ckpt::RunId, ViewPoint)> held;
    // True if a record may be appended now. From then until on_moved, or until recording() is
    // empty, history must not change, and no new references into the run may be made.
    std::function<bool()> may_record;
    // The record is durable.
    std::function<void(uint64_t sequence, const ckpt::fb::RecordT& record)> on_moved;
  };
  struct Counters {
    uint64_t read_bytes = 0;
    uint64_t written_bytes = 0;
    uint64_t saved_bytes = 0;  // disk space that is reclaimed in the end
    uint64_t errors = 0;       // extents that stay because of damage or a failed write
  };

  // Precondition: the catalog is up to date with the journal.
  Recoder(const RestoreContext& context, Catalog& catalog, Persist& persist, Options options);
  ~Recoder();
  Recoder(const Recoder&) = delete;
  Recoder& operator=(const Recoder&) = delete;

  void tick(Time now);
  // A commit is durable, and in the catalog.
  void committed(ckpt::RunId run, ViewPoint point, uint64_t sequence);
  // True: reads nothing that gc may reclaim. False: drops the current extent and will read it
  // again; ask again after the next poll.
  bool step_aside();
  // The run of the pending record.
  std::optional<ckpt::RunId> recording() const { return recording_; }
  // True if bytes of this commit are being written. Then no snapshot with the same name may
  // begin.
  bool writes_for(ckpt::RunId run, ViewPoint point) const {
    return writing_ && commit_ && key().run == run && key().lineage == point.lineage &&
           key().step == point.step;
  }
  // Starts nothing more. on_closed runs from the loop, never within this call.
  void close(std::function<void()> on_closed);

  const Counters& counters() const { return counters_; }

 private:
  // Next step of the current extent, or (kAway) a pending callback.
  enum class Stage : uint8_t { kIdle, kRead, kEncode, kWrite, kReadBack, kCheck, kRecord, kAway };
  struct Due {
    ckpt::RunId run = 0;
    ViewPoint point;
    uint64_t sequence = 0;
    uint64_t time_ns = 0;
  };
  struct Extent {
    ckpt::ExtentHeader from;  // as it lies now
    uint64_t header_bytes = 0;
    uint64_t bytes = 0;  // that the commit holds of it
    AlignedBuffer raw;
    AlignedBuffer encoded;
    std::unique_ptr<SlabEncoder> encoder;
    Persist::EncodedExtent to;
    std::optional<WrittenExtent> written;
    ExtentPosition position() const { return {from.segment, from.offset}; }
  };
  void go_on();
  void find_next();
  bool load_next();
  bool find_commits();
  bool is_old(uint64_t time_ns) const;
  bool may_gain(size_t extent) const;
  bool may_move() const;
  void commit_done();
  void pass_done();

  void read();
  void read_done(const ExtentReader::Outcome& outcome);
  void encode();
  void encode_stepped(const Status& status);
  void encoded();
  void write();
  void written(const Result<WrittenExtent>& extent);
  void read_back();
  void check();
  void checked(const ExtentReader::Outcome& outcome);
  bool unchanged() const;
  ckpt::fb::RecordT moved_record() const;
  void give_up();
  void record();
  void recorded(const ckpt::fb::RecordT& record, const Result<uint64_t>& sequence);

  // Leaves the extent as it is.
  void leave(const std::string& why = {});
  void next_extent();
  void drop_commit();
  bool may_pass(uint64_t bytes);
  const ckpt::SnapshotKey& key() const { return commit_->info().snapshot; }

  const RestoreContext context_;
  Catalog& catalog_;
  Persist& persist_;
  const Options options_;
  Counters counters_;
  Time now_{};
  Pace pace_;

  bool found_ = false;                 // find_commits() has found the last daemon's commits
  std::deque<Due> due_;                // commits to examine, in the order of their records
  std::optional<CommitCheck> commit_;  // the front of due_
  size_t extent_ = 0;                  // index in the commit; extents_: its count
  size_t extents_ = 0;
  Extent at_hand_;
  Stage stage_ = Stage::kIdle;
  bool encoding_ = false;  // on the executor
  std::optional<ckpt::RunId> recording_;
  bool writing_ = false;        // from the reservation of space until recorded or dropped
  Counters of_pass_;            // counters at the start of the pass:
  size_t commits_of_pass_ = 0;  // since the last commit that was too young
  bool stopping_ = false;
  bool closed_ = false;
  std::function<void()> on_closed_;
  ExtentReader reader_;
};

}  // namespace ckptd
