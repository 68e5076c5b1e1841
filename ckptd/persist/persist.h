// Persist: sealed slabs become extents, extents become a commit.
//
//   write(slab)  -> extent header + payload written, payload checked again after the write
//                   optionally encoded first, into memory of the daemon
//   keep(slab)   -> payload checked
//   commit(...)  -> fdatasync of the touched segments -> journal record, durable -> callback
//
// Commits that are ready together share syncs and one journal batch (group commit). After a failed
// write or sync the segment is sealed off: every snapshot with unsynced extents in it fails.
#pragma once

#include <functional>
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
#include "formats/commit.h"
#include "formats/journal.h"
#include "formats/segment.h"

namespace ckptd {

using ckpt::WrittenExtent;

// Position of an extent: header and padded payload.
struct ExtentPlace {
  ckpt::SegmentId segment = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Appends to the journal; its only writer. Records of one append are one batch; appends that arrive
// during a sync share the next batch. on_durable runs from Disk::reap().
//
// Space is allocated ahead, so that a disk filled by others still takes records. A write that still
// finds no space fails only its batch: nothing of it is durable, and the next batch overwrites it.
// After any other error, and after every failed sync, the journal is closed for writing: the
// kernel's state of the batch is unknown, and every later append fails.
class JournalWriter {
 public:
  JournalWriter(Disk& disk, FileId file, const ckpt::JournalEncoder::Position& position);
  ~JournalWriter();  // asserts nothing in flight
  // on_durable gets the sequence number of the first record.
  void append(std::vector<ckpt::fb::RecordT> records,
              std::function<void(Result<uint64_t>)> on_durable);
  // The store's version, and how to raise it (formats/journal.h). Before the first record that
  // needs a newer version, `make_record` returns a StoreOpened, written in the same batch.
  // `on_raised` runs like append()'s callbacks. If unset, the version is never raised.
  struct StoreVersion {
    uint32_t version = 0;  // 0: the StoreOpened of this startup is not yet written
    uint32_t least = ckpt::kFirstStoreVersion;  // lowest version of that record
    std::function<ckpt::fb::RecordT(uint32_t version)> make_record;
    std::function<void(uint64_t sequence, const ckpt::fb::RecordT& record)> on_raised;
  };
  void set_store_version(StoreVersion version);
  // Passes callbacks to `deliver`, one per append, in journal order, instead of running them; the
  // receiver runs them in that order. Empty: callbacks run directly again.
  using Deliver = std::function<void(std::function<void()>)>;
  void set_deliver(Deliver deliver);
  size_t in_flight() const;  // without callbacks passed to `deliver`
  uint64_t bytes() const;
  uint64_t durable_bytes() const;  // the part before this offset is never written again
  Status health() const;           // the error that closed the journal
  // False: the disk is full, and the allocated space is less than `bytes` plus the minimum for
  // other records. Allocates more, from Disk::reap() on.
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
    // This extent of a failed snapshot is final: never listed and never written again.
    std::function<void(const ExtentPlace&)> on_dead = {};
  };
  Persist(Disk& disk, Executor& executor, JournalWriter& journal, const Options& options);
  ~Persist();  // asserts that close() was called

  // Reserves disk space for a snapshot before its first byte, and `record_bytes` of the journal for
  // its commit; repeated calls add up (one per member). kResourceExhausted: the disk is full, with
  // the message of disk_full_error(). commit() and abandon() release it, too. `whole_bytes`: demand
  // of all members of the snapshot; 0: unknown.
  Status reserve(const ckpt::SnapshotKey& snapshot, uint64_t bytes, uint64_t record_bytes = 0,
                 uint64_t whole_bytes = 0);
  // Reserves more space for a snapshot that has a reservation. False if there is no room, or the
  // journal is closed; this refusal does not count as a shortage.
  bool try_reserve(const ckpt::SnapshotKey& snapshot, uint64_t bytes, uint64_t record_bytes);
  void release_reservation(const ckpt::SnapshotKey& snapshot);
  // The current room on the disk for the next snapshot.
  Result<DiskRoom> room() const;
  // Set from the first refusal for lack of space until there is room for the whole snapshot, or a
  // later snapshot of the run is durable. Also set while there is no space at all.
  Result<std::optional<DiskShortage>> shortage();
  // Drops noted shortages: all of them, or those of a removed run.
  void forget_shortages();
  void forget_shortage(ckpt::RunId run);

  // Handling of a slab after it was written and checked: kHold until commit() makes it durable or
  // the snapshot fails, kFree at once.
  enum class Afterwards : uint8_t { kHold, kFree };
  // Writes the slab as one extent. on_done runs from the loop (Disk::reap or Executor::reap), with
  // kCorrupt if the bytes changed under the write. `observer` sees the bytes during the check, on
  // another thread, and is done before on_done runs. With a plan, units in the plan that shrink are
  // written encoded; all others straight from the slab. `left_out`: fragments not to write, from
  // left_out_of_slab(); empty: none. They are checked like the others. `bases`: for fragments that
  // may become deltas.
  void write(const ckpt::SnapshotKey& snapshot, ckpt::Rank rank, StagedSlab slab,
             std::function<void(Result<WrittenExtent>)> on_done, PayloadObserver observer = {},
             Afterwards afterwards = Afterwards::kHold, EncodePlan encode_plan = nullptr,
             const std::vector<bool>& left_out = {}, std::shared_ptr<BaseSource> bases = nullptr);

  // Keeps a slab in memory: checked like a written one, but not written. It is held until commit()
  // passes it to the memory level, together with the others, or the snapshot fails.
  void keep(const ckpt::SnapshotKey& snapshot, StagedSlab slab,
            std::function<void(const Status&)> on_done, PayloadObserver observer = {});

  // Call this once all extents are written. Syncs, appends the record, then calls on_done with the
  // record's sequence number. `make_record` is called once, after the syncs, so that no time in the
  // record is before the data was on disk. It fills in extents and fragments. The snapshot's slabs
  // become cache; if the commit failed, they are freed.
  void commit(const ckpt::SnapshotKey& snapshot, std::function<ckpt::fb::RecordT()> make_record,
              std::function<void(Result<uint64_t>)> on_done);

  // Drops the snapshot: queued writes are dropped, running ones complete into dead space; none of
  // their callbacks runs afterwards. Does nothing for a snapshot that is being committed: the
  // commit's on_done reports its result.
  void abandon(const ckpt::SnapshotKey& snapshot);

  struct Stats {
    uint64_t bytes_written = 0;
    uint64_t extents_written = 0;
    uint64_t syncs = 0;
    uint64_t commits = 0;
    uint64_t shortages = 0;  // snapshots that found the disk full
    uint64_t payload_mismatches = 0;
    // Bytes of fragments in written extents, by encoding.
    uint64_t raw_bytes = 0;
    uint64_t encoded_raw_bytes = 0;     // before encoding
    uint64_t encoded_stored_bytes = 0;  // after encoding
    uint64_t delta_raw_bytes = 0;       // likewise for deltas
    uint64_t delta_stored_bytes = 0;
    double encode_seconds = 0;         // time of threads, including encodes without gain
    double disk_bytes_per_second = 0;  // recent; 0: too little was written
    size_t bytes_queued = 0;
    size_t bytes_in_flight = 0;
  };
  Stats stats() const;
  // True if the segment's file is open for writing, or has unsynced data.
  bool writes_to(ckpt::SegmentId segment) const;
  bool idle() const;
  void close();  // waits until nothing is in flight

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd
