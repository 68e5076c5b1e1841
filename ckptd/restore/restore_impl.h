// Private to this folder: the parts of RestoreJob.
//
//   queue of slices --fill--> window (a slab) --reads--> --checksums on the executor--> deliver
//        ^                                                                                 |
//        '------------- same fragment from the next source, or unit from an older version -'
//
//   queue --locate--> deliver ... the client reads ... --failed fragments--> queue, to be filled
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "ckptd/io/aligned_buffer.h"
#include "ckptd/restore/restore.h"
#include "ckptd/restore/served_versions.h"
#include "ckptd/safeguards.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

// One fragment being restored, and all wants that need part of it.
struct RestoreFragment {
  struct Part {
    size_t want = 0;
    ckpt::UnitRange range;
  };
  ckpt::UnitId unit = 0;
  Source source = Source::kSegment;
  ckpt::SnapshotKey snapshot;
  FragmentPlace place;
  std::vector<Part> parts;
  bool located = false;  // the client was to read it, and failed
  // A fragment that does not fit into a slab comes in several slices. Its CRC combines their CRCs,
  // once the last slice has arrived.
  std::vector<uint32_t> slice_crcs;
  size_t slices_left = 0;
  // True once its unit or its source was abandoned: slices that still arrive are dropped.
  bool dropped = false;
};

// True if the CRC is the one in the journal.
inline bool crc_holds(const RestoreFragment& fragment, uint32_t crc32c) {
  return crc32c == fragment.place.crc32c || left_out(Safeguard::kPayloadCrc);
}

struct RestoreSlice {
  std::shared_ptr<RestoreFragment> fragment;
  size_t index = 0;
  uint64_t offset = 0;  // in the fragment
  uint64_t length = 0;

  // Range to read: always the whole fragment if it is encoded.
  bool encoded() const { return fragment->place.codec != 0; }
  uint64_t file_begin() const { return fragment->place.payload_offset + (encoded() ? 0 : offset); }
  uint64_t file_end() const {
    return encoded() ? fragment->place.stored_end() : file_begin() + length;
  }
};

// A slice in its place in a window's slab.
struct RestoreSlot {
  RestoreSlice slice;
  uint64_t slab_offset = 0;
  Source source = Source::kSegment;
  std::optional<MemoryLease> lease;  // with source memory
  std::optional<size_t> encoded;     // index of the window's run with its encoded bytes
  std::optional<size_t> base;        // of a delta: index of the run with its base's bytes
  bool base_failed = false;          // the base is the part that could not be read
  Status status;                     // of the read
  uint32_t crc32c = 0;
  std::vector<WindowPiece> pieces;  // parts for the client
};

// A range of a segment that is read into a range of the slab with one or more requests: slices that
// share or touch blocks. Encoded runs are read into the daemon's own memory instead.
struct RestoreRun {
  ckpt::SegmentId segment = 0;
  uint64_t file_begin = 0;  // multiples of the block size
  uint64_t file_end = 0;
  uint64_t slab_offset = 0;
  bool encoded = false;
};

// Fragments of one segment that the client is to read or is reading.
struct LocatedBatch {
  ckpt::SegmentId segment = 0;
  std::vector<std::shared_ptr<RestoreFragment>> fragments;
};

struct FillingWindow {
  uint32_t slab = 0;
  ckpt::MutableByteView bytes;
  uint64_t used = 0;
  std::vector<RestoreSlot> slots;
  std::vector<RestoreRun> runs;
  std::map<size_t, AlignedBuffer> encoded;  // buffers of encoded runs, by run
  uint64_t encoded_bytes = 0;               // of all encoded runs
  std::vector<SegmentHandle> files;         // held open until the reads are done
  size_t pending = 0;                       // opens and reads in flight
};

struct RestoreJob::Impl {
  Impl(Context with, ArenaId of_arena, uid_t of_uid, RestoreRequest of_request,
       std::function<void(Result<Window>)> callback);

  // ---- restore_job.cc: the queue, and the result of each fragment ----
  void add(const std::vector<PlannedRead>& reads);  // to the end of the queue
  void add_slices(const std::shared_ptr<RestoreFragment>& fragment);
  void pump();
  void checked(FillingWindow& window);
  void settle(RestoreSlot& slot, std::vector<WindowPiece>& pieces);
  void from_next_source(RestoreFragment& fragment, Source failed, const ckpt::Error& error,
                        bool base_failed = false);
  void from_segment(RestoreFragment& fragment, const std::string& reason);
  void hold_memory(const std::vector<PlannedRead>& reads);
  // Drops `fragment`; returns its replacement, which is not in the queue yet.
  static std::shared_ptr<RestoreFragment> again_from_segment(RestoreFragment& fragment);
  void note_source(const RestoreFragment& fragment, const std::string& what);
  void from_older_version(const RestoreFragment& fragment, const FragmentPlace& failed,
                          const std::string& reason);
  bool stale(const RestoreFragment& fragment) const;
  void deliver(Window window);
  void finish_if_done();
  void finish_close();
  bool busy() const { return !filling.empty() || locating || deferred > 0; }
  bool nothing_left() const {
    return queue.empty() && filling.empty() && !locating && located.empty();
  }
  // Runs `then` from the loop.
  void defer(std::function<void()> then);

  // ---- restore_window.cc: filling one slab ----
  void fill(uint32_t slab);
  bool place(FillingWindow& window, const RestoreSlice& slice);
  bool place_from_memory(FillingWindow& window, const RestoreSlice& slice);
  bool place_from_segment(FillingWindow& window, const RestoreSlice& slice);
  bool place_encoded(FillingWindow& window, const RestoreSlice& slice);
  static size_t add_encoded(FillingWindow& window, const FragmentPlace& place);
  void read_run(FillingWindow& window, size_t run);
  void submit_reads();
  void read_done(FillingWindow& window, const RestoreRun& piece, const Result<uint64_t>& bytes);
  void filled_if_complete(FillingWindow& window);

  // ---- restore_locate.cc: fragments that the client reads itself ----
  bool to_locate(const RestoreFragment& fragment) const;
  void locate_next();
  LocatedBatch take_batch();
  void hand_out(LocatedBatch batch, const Status& opened);
  uint64_t located_read(const LocatedAnswer& answer);
  void read_here(RestoreFragment& fragment, const std::string& reason);
  void stop_locating();

  Context context;
  const ArenaId arena;
  const uid_t uid;
  const RestoreRequest request;
  RestoreOracle oracle;
  std::function<void(Result<Window>)> on_window;
  uint64_t slice_bytes_max = 0;

  ServedVersions versions;
  // Keeps versions that are only in memory until the last window is delivered.
  std::vector<std::shared_ptr<void>> holds;

  std::deque<RestoreSlice> queue;
  uint64_t locate_bytes_max = 0;  // of one located window; 0: the client reads nothing itself
  bool locating = false;          // a batch waits for its segment
  uint64_t next_located = 1;
  std::map<uint64_t, LocatedBatch> located;                                // with the client
  std::optional<std::pair<ckpt::SegmentId, ckpt::base::UniqueFd>> shared;  // of the last segment
  std::list<FillingWindow> filling;               // stable addresses: completions point to them
  std::set<uint32_t> out;                         // slabs that the client has
  std::deque<std::function<void()>> unsubmitted;  // reads beyond the limit in flight
  size_t reads_in_flight = 0;
  size_t deferred = 0;
  std::optional<ckpt::Error> failure;
  bool finishing = false;
  bool over = false;  // the last window or the error was delivered
  bool closed = false;
  std::function<void()> on_closed;
};

inline constexpr char kMismatch[] = "CRC32C mismatch";

// Copies from memory, decodes and computes checksums. Runs on the executor; touches only the window
// and, atomically, the meter, if there is one.
void check_window(FillingWindow& window, DecodeMeter* meter);

// restore_decode.cc: decodes the encoded slots of a window into their places in its slab.
void decode_window(FillingWindow& window, DecodeMeter* meter);

}  // namespace ckptd
