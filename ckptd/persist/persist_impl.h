// Private to this folder: the state of Persist.
#pragma once

#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>

#include "ckptd/codec/slab_encoder.h"
#include "ckptd/io/aligned_buffer.h"
#include "ckptd/persist/persist.h"
#include "ckptd/persist/segments.h"
#include "ckptd/persist/shortage_watch.h"
#include "ckptd/persist/slab_parts.h"
#include "ckptd/persist/write_meter.h"
#include "formats/base/outstanding.h"

namespace ckptd {

// One slab that is being written as one extent.
struct ExtentWrite {
  ckpt::SnapshotKey snapshot;
  StagedSlab slab;
  std::function<void(Result<WrittenExtent>)> on_done;
  PayloadObserver observer;
  SlabParts parts;  // parts of the slab to write
  WrittenExtent extent;
  Segment* segment = nullptr;  // null: not placed yet
  AlignedBuffer header;
  uint64_t submitted_bytes = 0;  // of the payload
  size_t part_at = 0;            // the next part, if parts of the slab are written
  uint64_t part_submitted_bytes = 0;
  ckpt::base::Outstanding pieces_in_flight;  // header included
  std::optional<ckpt::Error> error;
  bool abandoned = false;
  bool kept = false;   // only in memory, without an extent
  bool frees = false;  // frees its slab once it is written

  // Encoded writes (encode.cc).
  EncodePlan units;                             // until encoding starts
  std::shared_ptr<BaseSource> bases;            // null: no fragment becomes a delta
  std::vector<ckpt::ExtentFragment> to_encode;  // places in the slab
  std::unique_ptr<SlabEncoder> encoder;         // while encoding
  uint64_t encode_bytes = 0;                    // counts for the limit on encodes until written
  AlignedBuffer encoded;
  uint64_t encoded_bytes = 0;  // of the payload; 0: parts of the slab are written
  std::chrono::steady_clock::duration encode_time{0};

  // Computes `parts` and `to_encode`.
  void take_parts(const std::vector<bool>& left_out);
  // Bytes to write, padded to whole blocks.
  uint64_t padded_bytes() const;
  // Zeroes the rest of the last block of an encoded payload.
  void pad();
  // The next unsubmitted bytes, as they lie in memory, at most `most`; marks them as submitted.
  MutableByteView next_piece(uint64_t most);
};

struct SnapshotWrites {
  uint64_t reserved_bytes = 0;                     // reserved, not yet placed
  uint64_t asked_bytes = 0;                        // reserved in total
  uint64_t whole_bytes = 0;                        // demand of all members, as far as known
  uint64_t reserved_record_bytes = 0;              // likewise, in the journal
  ckpt::base::Outstanding writes_open;             // queued, running or being checked
  size_t fragments_encoded = 0;                    // pieces of encoded fragments
  std::vector<std::weak_ptr<ExtentWrite>> active;  // these writes, including finished ones
  std::set<ckpt::SegmentId> unsynced;
  std::vector<StagedSlab> slabs;    // written, held until durable
  std::vector<StagedSlab> kept;     // not written, held likewise
  std::vector<ExtentPlace> placed;  // of finished writes: dead if the snapshot is abandoned
  std::optional<ckpt::Error> failed;
  bool committing = false;
};

struct PendingCommit {
  ckpt::SnapshotKey snapshot;
  std::function<ckpt::fb::RecordT()> make_record;
  std::function<void(Result<uint64_t>)> on_done;
};

struct Persist::Impl {
  using WritePointer = std::shared_ptr<ExtentWrite>;

  Impl(Disk& with_disk, Executor& with_executor, JournalWriter& with_journal, const Options& with);

  // Extents (extents.cc).
  void pump();
  Result<bool> place(ExtentWrite& write);  // false: not yet, a segment is being made
  void submit_header(const WritePointer& write);
  void submit_piece(const WritePointer& write);
  void piece_done(const WritePointer& write, size_t bytes, const Result<uint64_t>& result);
  void all_written(const WritePointer& write);
  void check(const WritePointer& write);
  void finish(const WritePointer& write, const Status& status);
  bool leave_queue(const WritePointer& write);
  void abandon_writes(SnapshotWrites& snapshot);
  void report_dead(const ExtentPlace& extent);

  // Codecs (encode.cc).
  void start_encodes();
  void next_encode_step(const WritePointer& write);
  void encode_step(const WritePointer& write, BasePieces bases);
  void encode_stepped(const WritePointer& write, const Status& status);
  void take_encoded(ExtentWrite& write);
  void release_buffer(ExtentWrite& write);

  // Faults: seals off the segment, and fails snapshots with unsynced extents in it.
  void fail_segment(Segment& segment, const ckpt::Error& error);
  // After a failed sync: likewise for every segment, except for completely synced snapshots.
  void fail_device(const ckpt::Error& error, const std::set<ckpt::SnapshotKey>& synced);

  // Group commit (group_commit.cc).
  void start_round();
  void round_synced();
  // True if the current round has synced all segments with extents of the snapshot.
  bool synced_in_round(const SnapshotWrites& snapshot) const;
  void append_round(std::vector<PendingCommit> commits);
  // Notes a shortage if the journal refused the snapshot's record because the disk is full.
  void note_journal_full(const ckpt::SnapshotKey& snapshot, const ckpt::Error& error);
  void refuse(const PendingCommit& commit, ckpt::Error error);
  void forget(const ckpt::SnapshotKey& snapshot);  // with its reservation, slabs and unsynced marks

  // Space (persist.cc).
  Result<DiskRoom> room() const;
  uint64_t record_bytes_promised() const;
  // Reserves as Persist::reserve() describes, or returns the shortage.
  Result<std::optional<DiskShortage>> reserve(const ckpt::SnapshotKey& snapshot, uint64_t bytes,
                                              uint64_t record_bytes, uint64_t whole_bytes);
  ckpt::Error refuse_space(const ckpt::SnapshotKey& snapshot, const DiskShortage& shortage);
  // The error of a write of the snapshot, with its remedy. A lack of space is noted as a shortage,
  // and gets the message of a full disk. `bytes`: of the write.
  ckpt::Error name_cause(const ckpt::Error& error, const ckpt::SnapshotKey& snapshot,
                         uint64_t bytes);

  Disk& disk;
  Executor& executor;
  JournalWriter& journal;
  const Options options;
  Segments segments;
  std::deque<WritePointer> queue;  // not yet completely submitted
  std::deque<WritePointer> to_encode;
  size_t encodes_running = 0;
  uint64_t encode_bytes = 0;  // of slabs being encoded, or encoded and not yet written
  std::vector<AlignedBuffer> spare_buffers;
  std::map<ckpt::SnapshotKey, SnapshotWrites> snapshots;
  ShortageWatch shortages;
  uint64_t next_sequence;
  ckpt::base::Outstanding bytes_in_flight;
  WriteMeter meter;                     // of bytes in flight
  ckpt::base::Outstanding writes_open;  // of all snapshots, abandoned ones too
  bool pumping = false;

  std::vector<PendingCommit> ready;                             // waiting for the next sync round
  std::vector<PendingCommit> syncing;                           // in the round
  std::map<ckpt::SegmentId, std::optional<ckpt::Error>> round;  // segment -> result of its sync
  ckpt::base::Outstanding syncs_in_flight;
  ckpt::base::Outstanding commits_open;
  bool closed = false;
  Stats stats;
};

}  // namespace ckptd
