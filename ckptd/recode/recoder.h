// Recoder: bytes that have lain on the disk as they are for long are encoded in the background, so
// that they take less of it.
//
//   read and checked, as scrub does -> encoded -> written as another extent of its commit -> read
//   back
//   -> synced, then the Moved record durable -> catalog; what is left behind is dead then, and is
//   given back as what a prune leaves is, after all who may still read it
//
// One extent after the other; of commits in the order of their records, each once, when it is old
// enough. An extent moves whole: where something in it is encoded already, where another commit has
// some of its bytes, or where it does not get smaller by an eighth, it stays. So does what is
// damaged. Up to which commit it has come is kept in the catalog; a crash at any point leaves at
// most an extent that no record names, which the next start gives back, and an extent that is
// looked at again.
//
// It goes at a bounded pace, and gives way to others (scrub/pace.h). Loop thread. The destructor
// asserts that it was closed; a record on its way may still come back then, until persist is
// closed.
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
    std::chrono::milliseconds after{0};  // how old a commit is by then; 0: nothing is ever encoded
    uint64_t bytes_per_second = 0;       // read and written
    std::function<uint64_t()> wall_clock_ns;
    // Do restores or snapshots use the disk?
    std::function<bool()> others_busy;
    // May an extent be begun? Not while space is given back, nor when all is to end.
    std::function<bool()> may_begin;
    // May bytes of the commit be about to be referred to?
    std::function<bool(ckpt::RunId, ViewPoint)> held;
    // May a record go out now? From then until on_moved, or recording() is over, nobody changes
    // history, and nothing of the run is referred to anew.
    std::function<bool()> may_record;
    // The record is durable.
    std::function<void(uint64_t sequence, const ckpt::fb::RecordT& record)> on_moved;
  };
  struct Counters {
    uint64_t read_bytes = 0;
    uint64_t written_bytes = 0;
    uint64_t saved_bytes = 0;  // that the disk gets back in the end
    uint64_t errors = 0;       // extents that stay since they are damaged, or could not be written
  };

  // The catalog is up to date with the journal.
  Recoder(const RestoreContext& context, Catalog& catalog, Persist& persist, Options options);
  ~Recoder();
  Recoder(const Recoder&) = delete;
  Recoder& operator=(const Recoder&) = delete;

  void tick(Time now);
  // A commit became durable, and is in the catalog.
  void committed(ckpt::RunId run, ViewPoint point, uint64_t sequence);
  // True: it reads nothing that may be given back. False: it drops the extent at hand, and will
  // read it again; it is to be asked again after the next poll.
  bool step_aside();
  // The run of which a record is on its way.
  std::optional<ckpt::RunId> recording() const { return recording_; }
  // Is something on its way to the disk in the name of this commit? Then no snapshot may begin that
  // would have the same.
  bool writes_for(ckpt::RunId run, ViewPoint point) const {
    return writing_ && commit_ && key().run == run && key().lineage == point.lineage &&
           key().step == point.step;
  }
  // Nothing is begun any more. on_closed runs from the loop, never within this call.
  void close(std::function<void()> on_closed);

  const Counters& counters() const { return counters_; }

 private:
  // What the extent at hand waits for: its turn, or (kAway) a callback.
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

  // It stays as it is.
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

  bool found_ = false;                 // the commits that the last daemon left
  std::deque<Due> due_;                // not looked at so far, in the order of their records
  std::optional<CommitCheck> commit_;  // the front of them
  size_t extent_ = 0;                  // of the commit, and how many it had
  size_t extents_ = 0;
  Extent at_hand_;
  Stage stage_ = Stage::kIdle;
  bool encoding_ = false;  // on the executor
  std::optional<ckpt::RunId> recording_;
  bool writing_ = false;        // from the promise of space until it is recorded or given up
  Counters of_pass_;            // as they were when the pass began: since the last commit that was
  size_t commits_of_pass_ = 0;  // too young
  bool stopping_ = false;
  bool closed_ = false;
  std::function<void()> on_closed_;
  ExtentReader reader_;
};

}  // namespace ckptd
