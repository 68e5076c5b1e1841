// Persist: sealed slabs become extents, extents become a commit.
//
//   write(slab)  -> extent header + payload written, payload checked again after the write
//                   before that, if asked for: encoded, into memory of the daemon's
//   keep(slab)   -> payload checked
//   commit(...)  -> fdatasync of the touched segments -> journal record, durable -> callback
//
// Commits that are ready together share syncs and one journal batch (group commit). After a failed
// write or sync the segment is sealed off: every snapshot with unsynced extents in it fails.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckptd/codec/base_source.h"
#include "ckptd/codec/slab_encoder.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/executor.h"
#include "ckptd/persist/disk_room.h"
#include "ckptd/persist/write_meter.h"
#include "ckptd/staging/staging.h"
#include "formats/journal.h"
#include "formats/segment.h"

namespace ckptd {

// Where one slab went; becomes fb::Extent in the commit record. Without fragments: nothing of the
// slab had to be written. Or an extent of an earlier commit with bytes of this one.
struct WrittenExtent {
  ckpt::SegmentId segment = 0;
  uint64_t offset = 0;
  uint32_t header_bytes = 0;
  uint64_t payload_bytes = 0;
  uint32_t header_crc32c = 0;
  uint32_t payload_crc32c = 0;
  ckpt::Rank rank = 0;
  std::vector<ckpt::ExtentFragment> fragments;
  std::optional<ckpt::SnapshotKey> writer = {};  // that earlier commit
};

// Where an extent lies: header and padded payload.
struct ExtentPlace {
  ckpt::SegmentId segment = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Appends to the journal; the only writer of it. Records of one append are one batch; appends that
// arrive while a sync runs share the next. on_durable runs from Disk::reap().
//
// Space is taken ahead, so that a disk which others have filled still takes records. A write for
// which there is none all the same fails its batch alone: nothing of it was made durable, and the
// next batch is written over it. After any other error, and after every failed sync, the journal is
// closed for writing: what the kernel has of the batch is unknown, and every later append fails.
class JournalWriter {
 public:
  JournalWriter(Disk& disk, FileId file, const ckpt::JournalEncoder::Position& position);
  ~JournalWriter();  // asserts nothing in flight
  // The sequence number of the first record is given to on_durable.
  void append(std::vector<ckpt::fb::RecordT> records,
              std::function<void(Result<uint64_t>)> on_durable);
  // The version that the store has, and how it is raised (formats/journal.h): before the first
  // record that needs a newer one, `make_record` gives a StoreOpened, which is written in the same
  // batch; `on_raised` is told of it as callbacks of append() are. Without this nothing is raised.
  struct StoreVersion {
    uint32_t version = 0;  // 0: this start is not on record, and its StoreOpened is still to come
    uint32_t least = ckpt::kFirstStoreVersion;  // of that one
    std::function<ckpt::fb::RecordT(uint32_t version)> make_record;
    std::function<void(uint64_t sequence, const ckpt::fb::RecordT& record)> on_raised;
  };
  void set_store_version(StoreVersion version);
  // Callbacks are handed to `deliver`, one for each append, in the order of the journal, instead of
  // being run: whoever takes them runs them in that order. Empty: they run again by themselves.
  using Deliver = std::function<void(std::function<void()>)>;
  void set_deliver(Deliver deliver);
  size_t in_flight() const;  // not counting what was handed over
  uint64_t bytes() const;
  uint64_t durable_bytes() const;  // up to here nothing is written any more
  Status health() const;           // the error that closed it
  // False: the disk is full, and the space taken ahead is less than `bytes` and the least that is
  // kept for others' records. Asks for more, from Disk::reap() on.
  bool has_room(uint64_t bytes = 0);
  // Like has_room(), but reserves nothing.
  bool lacks_room(uint64_t bytes = 0) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class Persist {
 public:
  struct Options {
    ckpt::base::Hash128 store;
    ckpt::SegmentId first_segment = 1;  // each start opens new segments
    uint64_t first_sequence = 1;
    uint64_t segment_bytes = 1ull << 30;
    size_t bytes_in_flight_max = 128u << 20;
    size_t write_piece_bytes = 4u << 20;
    uint64_t reserve_bytes = 0;  // disk space never used by payload
    std::function<std::chrono::nanoseconds()> stopwatch = monotonic_time;  // for the disk's rate
    // Nobody will ever list this extent of a snapshot that failed, nor write to it any more.
    std::function<void(const ExtentPlace&)> on_dead = {};
  };
  Persist(Disk& disk, Executor& executor, JournalWriter& journal, const Options& options);
  ~Persist();  // asserts that close() was called

  // Disk space for a snapshot, promised before its first byte, and as much as `record_bytes` of the
  // journal for its commit; repeated calls add up (one per member). kResourceExhausted: the disk is
  // full, in the words of disk_full_error(). Released by commit and abandon, too. `whole_bytes`:
  // what all members of the snapshot will ask for, where that is known; 0: it is not.
  Status reserve(const ckpt::SnapshotKey& snapshot, uint64_t bytes, uint64_t record_bytes = 0,
                 uint64_t whole_bytes = 0);
  // Reserves more for a snapshot that has a reservation. False if there is no room, or the journal
  // is closed; this refusal is no shortage.
  bool try_reserve(const ckpt::SnapshotKey& snapshot, uint64_t bytes, uint64_t record_bytes);
  void release_reservation(const ckpt::SnapshotKey& snapshot);
  // The room for the next snapshot, as the disk has it now.
  Result<DiskRoom> room() const;
  // Set from the first refusal for lack of space until there is room for the whole snapshot, or the
  // run has a later one that is durable. Set, too, while there is no space at all.
  Result<std::optional<DiskShortage>> shortage();
  // Drops remembered shortages: all, which no snapshot has retried, or those of a run that is gone.
  void forget_shortages();
  void forget_shortage(ckpt::RunId run);

  // What becomes of the slab once it is written and checked: held until commit() made it durable or
  // the snapshot failed, or free at once.
  enum class Afterwards : uint8_t { kHold, kFree };
  // Writes the slab as one extent. on_done runs from the loop (Disk::reap or Executor::reap), with
  // the error kCorrupt if the bytes changed under the write. `observer` sees the bytes while they
  // are checked, on another thread, and is done before on_done runs. With a plan, what it names and
  // gets smaller by that is written encoded; else straight from the slab. `left_out` are fragments
  // that are not written, as left_out_of_slab() gives them; empty: none. They are checked like the
  // others. `bases`: for those that may become deltas.
  void write(const ckpt::SnapshotKey& snapshot, ckpt::Rank rank, StagedSlab slab,
             std::function<void(Result<WrittenExtent>)> on_done, PayloadObserver observer = {},
             Afterwards afterwards = Afterwards::kHold, EncodePlan encode_plan = nullptr,
             const std::vector<bool>& left_out = {}, std::shared_ptr<BaseSource> bases = nullptr);

  // A slab that stays in memory: checked as a written one is, not written. It is held until
  // commit() hands it to the memory level, together with the others, or the snapshot failed.
  void keep(const ckpt::SnapshotKey& snapshot, StagedSlab slab,
            std::function<void(const Status&)> on_done, PayloadObserver observer = {});

  // All extents of the snapshot are written. Syncs, appends the record, then on_done with the
  // record's sequence number. `make_record` is called once, after the syncs: a time in the record
  // is not one before the data was on the disk. It fills in extents and fragments. The snapshot's
  // slabs become cache, or, if it failed, are freed.
  void commit(const ckpt::SnapshotKey& snapshot, std::function<ckpt::fb::RecordT()> make_record,
              std::function<void(Result<uint64_t>)> on_done);

  // Forgets the snapshot: queued writes are dropped, running ones complete into dead space; no
  // callback of theirs runs any more. A snapshot that is being committed is past that point: the
  // call does nothing, and the commit's on_done tells how it went.
  void abandon(const ckpt::SnapshotKey& snapshot);

  struct Stats {
    uint64_t bytes_written = 0;
    uint64_t extents_written = 0;
    uint64_t syncs = 0;
    uint64_t commits = 0;
    uint64_t shortages = 0;  // times that a snapshot found the disk full
    uint64_t payload_mismatches = 0;
    // Of fragments in written extents, by how they lie there.
    uint64_t raw_bytes = 0;
    uint64_t encoded_raw_bytes = 0;     // before
    uint64_t encoded_stored_bytes = 0;  // and after
    uint64_t delta_raw_bytes = 0;       // likewise, of deltas
    uint64_t delta_stored_bytes = 0;
    double encode_seconds = 0;         // of threads, what came to nothing included
    double disk_bytes_per_second = 0;  // as of late; 0: too little was written to tell
    size_t bytes_queued = 0;
    size_t bytes_in_flight = 0;
  };
  Stats stats() const;
  // Is the segment's file open for writing, or has it what is not yet synced?
  bool writes_to(ckpt::SegmentId segment) const;
  bool idle() const;
  void close();  // waits until nothing is in flight

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Where the base of a delta lies, in an extent of an earlier commit.
struct WrittenBase {
  ckpt::SegmentId segment = 0;
  uint64_t extent_offset = 0;
  uint64_t payload_offset = 0;  // from the start of the payload
  uint32_t crc32c = 0;
  uint32_t codec = 0;
  uint32_t encoded_crc32c = 0;
  uint64_t encoded_bytes = 0;
  uint32_t deltas = 0;  // as in records.fbs
};
using WrittenBases = std::map<std::pair<ckpt::UnitId, uint64_t>, WrittenBase>;  // by unit, offset

// Fills extents and fragments of a commit record. Every delta has its base in `bases`, and the
// extent of that is among the extents.
void fill_extents(const std::vector<WrittenExtent>& extents, ckpt::fb::CommittedT& record,
                  const WrittenBases& bases = {});

}  // namespace ckptd
