// What Persist keeps, for the sources of this folder only.
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

namespace ckptd {

// One slab on its way into one extent.
struct ExtentWrite {
  ckpt::SnapshotKey snapshot;
  StagedSlab slab;
  std::function<void(Result<WrittenExtent>)> on_done;
  PayloadObserver observer;
  SlabParts parts;  // of the slab: those that are to be written
  WrittenExtent extent;
  Segment* segment = nullptr;  // null: not placed yet
  AlignedBuffer header;
  uint64_t submitted_bytes = 0;  // of the payload
  size_t part_at = 0;            // the part that comes next, where it is parts of the slab
  uint64_t part_submitted_bytes = 0;
  size_t pieces_in_flight = 0;  // header included
  std::optional<ckpt::Error> error;
  bool abandoned = false;
  bool kept = false;   // in memory: it has no extent
  bool frees = false;  // its slab, as soon as it is written

  // One that is encoded (encode.cc).
  EncodePlan units;                             // until it is begun
  std::shared_ptr<BaseSource> bases;            // null: none of it becomes a delta
  std::vector<ckpt::ExtentFragment> to_encode;  // as they lie in the slab
  std::unique_ptr<SlabEncoder> encoder;         // while it is
  uint64_t encode_bytes = 0;                    // of the bound on all, until it is written
  AlignedBuffer encoded;
  uint64_t encoded_bytes = 0;  // of the payload; 0: it is parts of the slab
  std::chrono::steady_clock::duration encode_time{0};

  // Works out `parts` and `to_encode`.
  void take_parts(const std::vector<bool>& left_out);
  // What is written, padded to whole blocks.
  uint64_t padded_bytes() const;
  // Of what is encoded: what follows its bytes up to the end of their last block.
  void pad();
  // At most so many bytes of what is not submitted yet, as they lie in memory; it is from now on.
  MutableByteView next_piece(uint64_t most);
};

struct SnapshotWrites {
  uint64_t reserved_bytes = 0;                     // promised, not yet placed
  uint64_t asked_bytes = 0;                        // promised in all
  uint64_t whole_bytes = 0;                        // what all members ask for, as far as known
  uint64_t reserved_record_bytes = 0;              // of the journal, likewise
  size_t writes_open = 0;                          // queued, running or being checked
  size_t fragments_encoded = 0;                    // pieces of those that were cut
  std::vector<std::weak_ptr<ExtentWrite>> active;  // those writes, finished ones among them
  std::set<ckpt::SegmentId> unsynced;
  std::vector<StagedSlab> slabs;    // written, held until durable
  std::vector<StagedSlab> kept;     // not written, held likewise
  std::vector<ExtentPlace> placed;  // of writes that are over: dead if the snapshot is abandoned
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
  void tell_dead(const ExtentPlace& extent);

  // Codecs (encode.cc).
  void start_encodes();
  void next_encode_step(const WritePointer& write);
  void encode_step(const WritePointer& write, BasePieces bases);
  void encode_stepped(const WritePointer& write, const Status& status);
  void take_encoded(ExtentWrite& write);
  void give_back_buffer(ExtentWrite& write);

  // Faults: the segment takes no more, and what is not yet synced in it fails.
  void fail_segment(Segment& segment, const ckpt::Error& error);
  // After a failed sync: the same for every segment, sparing snapshots that are wholly synced.
  void fail_device(const ckpt::Error& error, const std::set<ckpt::SnapshotKey>& synced);

  // Group commit (group_commit.cc).
  void start_round();
  void round_synced();
  void append_round(std::vector<PendingCommit> commits);
  // Notes the shortage if a full disk is why the journal took no record of the snapshot.
  void note_journal_full(const ckpt::SnapshotKey& snapshot, const ckpt::Error& error);
  void refuse(const PendingCommit& commit, ckpt::Error error);
  void forget(const ckpt::SnapshotKey& snapshot);  // with its reservation, slabs and unsynced marks

  // Space (persist.cc).
  Result<DiskRoom> room() const;
  uint64_t record_bytes_promised() const;
  // Promises what Persist::reserve() says, or tells what lacks room for it.
  Result<std::optional<DiskShortage>> reserve(const ckpt::SnapshotKey& snapshot, uint64_t bytes,
                                              uint64_t record_bytes, uint64_t whole_bytes);
  ckpt::Error refuse_space(const ckpt::SnapshotKey& snapshot, const DiskShortage& shortage);
  // The error of a write of the snapshot. An error for lack of space is noted as a shortage, and
  // gets the words and the remedy of a full disk. `bytes`: of the write.
  ckpt::Error name_full_disk(const ckpt::Error& error, const ckpt::SnapshotKey& snapshot,
                             uint64_t bytes);

  Disk& disk;
  Executor& executor;
  JournalWriter& journal;
  const Options options;
  Segments segments;
  std::deque<WritePointer> queue;  // not yet completely submitted
  std::deque<WritePointer> to_encode;
  size_t encodes_running = 0;
  uint64_t encode_bytes = 0;  // of slabs that are being encoded, or were and are being written
  std::vector<AlignedBuffer> spare_buffers;
  std::map<ckpt::SnapshotKey, SnapshotWrites> snapshots;
  ShortageWatch shortages;
  uint64_t next_sequence;
  size_t bytes_in_flight = 0;
  WriteMeter meter;        // of what is in flight
  size_t writes_open = 0;  // of all snapshots, abandoned ones too
  bool pumping = false;

  std::vector<PendingCommit> ready;                             // wait for the next round of syncs
  std::vector<PendingCommit> syncing;                           // in the round
  std::map<ckpt::SegmentId, std::optional<ckpt::Error>> round;  // segment -> how its sync went
  size_t syncs_in_flight = 0;
  size_t commits_open = 0;
  bool closed = false;
  Stats stats;
};

}  // namespace ckptd
