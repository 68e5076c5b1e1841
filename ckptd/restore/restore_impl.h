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
  Place place;  // where it is read
  ckpt::SnapshotKey snapshot;
  FragmentPlace stored;  // as the catalog describes it
  std::vector<Part> parts;
  // A source refused the read: its bytes may be intact, so that no older version replaces them.
  std::optional<ckpt::ErrorCode> refused;
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
  return crc32c == fragment.stored.crc32c || left_out(Safeguard::kPayloadCrc);
}

struct RestoreSlice {
  std::shared_ptr<RestoreFragment> fragment;
  size_t index = 0;
  uint64_t offset = 0;  // in the fragment
  uint64_t length = 0;

  // Range to read in a stored source that has the fragment at `at`: always the whole fragment if it
  // is encoded.
  bool encoded() const { return fragment->stored.codec != 0; }
  uint64_t read_begin(const Address& at) const { return at.offset + (encoded() ? 0 : offset); }
  uint64_t read_end(const Address& at) const {
    return encoded() ? at.offset + fragment->stored.stored_bytes() : read_begin(at) + length;
  }
};

// A slice in its place in a window's slab.
struct RestoreSlot {
  RestoreSlice slice;
  uint64_t slab_offset = 0;
  // Where it is read: not the fragment's place if that source has just evicted it.
  Place place;
  std::optional<StagedBytes> staged;  // of a staged source
  std::optional<size_t> encoded;      // index of the window's run with its encoded bytes
  struct Base {
    size_t run = 0;  // index of the run with its bytes
    Address at;
  };
  std::optional<Base> base;    // of a delta
  bool base_failed = false;    // the base is the part that could not be read
  Status status;               // of the read
  SourceFailure failure = {};  // cause of a bad status
  uint32_t crc32c = 0;
  std::vector<WindowPiece> pieces;  // parts for the client
};

// A range of a container that is read into a range of the slab with one or more requests: slices
// that share or touch blocks. Encoded runs are read into the daemon's own memory instead.
struct RestoreRun {
  SourceId source = {};
  uint64_t container = 0;
  uint64_t begin = 0;  // multiples of the source's block size
  uint64_t end = 0;
  uint64_t slab_offset = 0;
  bool encoded = false;
};

// Fragments of one container that the client is to read or is reading.
struct LocatedBatch {
  SourceId source = {};
  uint64_t container = 0;
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
  std::vector<SourceLease> leases;          // of containers, held until the reads are done
  size_t pending = 0;                       // opens and reads in flight
};

// A read in flight that its source can cancel.
struct CancellableRead {
  SourceId source = {};
  ReadTicket ticket = 0;
  std::optional<std::chrono::nanoseconds> since;  // the first tick that saw it
  bool cancelled = false;
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
  // The bytes at `failed` could not be used. failed_base: the base of the delta is the bad part.
  void from_next_source(RestoreFragment& fragment, const Place& failed, const ckpt::Error& error,
                        const std::optional<Address>& failed_base = {});
  void hold(const std::vector<PlannedRead>& reads);
  // Drops `fragment`; returns its replacement, which is not in the queue yet.
  static std::shared_ptr<RestoreFragment> again_from(RestoreFragment& fragment, const Place& place);
  void note_source(const RestoreFragment& fragment, const std::string& source_text);
  void from_older_version(const RestoreFragment& fragment, const Place& failed,
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
  FragmentName name_of(const RestoreFragment& fragment) const {
    return {uid, fragment.snapshot, fragment.unit, fragment.stored};
  }

  // ---- restore_window.cc: filling one slab ----
  void fill(uint32_t slab);
  bool place(FillingWindow& window, const RestoreSlice& slice);
  bool place_stored(FillingWindow& window, const RestoreSlice& slice, const Place& at);
  bool place_encoded(FillingWindow& window, const RestoreSlice& slice, const Place& at);
  size_t add_encoded(FillingWindow& window, const Place& at, uint64_t stored_bytes) const;
  void read_run(FillingWindow& window, size_t run);
  void read_piece(FillingWindow& window, const RestoreRun& piece, ckpt::MutableByteView into,
                  size_t lease);
  void submit_reads();
  // `cause`: if the read failed.
  void read_done(FillingWindow& window, const RestoreRun& piece, const Result<uint64_t>& bytes,
                 SourceFailure cause);
  void filled_if_complete(FillingWindow& window);
  // True if the read was cancelled because it was slow.
  bool forget_cancellable(uint64_t read);
  void tick(std::chrono::nanoseconds now);
  void cancel_all();

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
  // Keeps fragments that no other source has until the last window is delivered.
  std::vector<std::shared_ptr<void>> holds;

  std::deque<RestoreSlice> queue;
  uint64_t locate_bytes_max = 0;  // of one located window; 0: the client reads nothing itself
  bool locating = false;          // a batch waits for its container
  uint64_t next_located = 1;
  std::map<uint64_t, LocatedBatch> located;  // with the client
  struct Shared {
    SourceId source = {};
    uint64_t container = 0;
    ckpt::base::UniqueFd file;
  };
  std::optional<Shared> shared;                   // of the last container
  std::list<FillingWindow> filling;               // stable addresses: completions point to them
  std::set<uint32_t> out;                         // slabs that the client has
  std::deque<std::function<void()>> unsubmitted;  // reads beyond the limit in flight
  size_t reads_in_flight = 0;
  uint64_t last_read = 0;
  std::map<uint64_t, CancellableRead> cancellable;  // by number of the read
  size_t deferred = 0;
  std::optional<ckpt::Error> failure;
  bool finishing = false;
  bool over = false;  // the last window or the error was delivered
  bool closed = false;
  std::function<void()> on_closed;
};

inline constexpr char kMismatch[] = "CRC32C mismatch";

// Copies staged bytes, decodes and computes checksums. Runs on the executor; touches only the
// window and, atomically, the meter, if there is one.
void check_window(FillingWindow& window, DecodeMeter* meter);

// restore_decode.cc: decodes the encoded slots of a window into their places in its slab.
void decode_window(FillingWindow& window, DecodeMeter* meter);

}  // namespace ckptd
