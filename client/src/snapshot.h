// Snapshot: one rank's share of one snapshot, from begin until it is durable or has failed.
//
// Filling goes slab by slab: lease, copy with CRC32C, seal. The seal messages are kept until the
// whole snapshot is durable. After a restart of the daemon only they and the arena are left, and
// reopen() sends them again. The session owns every unsettled snapshot, so a snapshot continues
// after the trainer has freed its handle.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/src/session.h"
#include "client/src/slab_layout.h"
#include "formats/base/snapshot_timings.h"
#include "formats/blob.h"
#include "formats/plan.h"

namespace ckpt::lib {

struct SnapshotOptions {
  Step step = 0;
  uint32_t attempt = 0;
  Plan plan;  // units in any order; fragments of all ranks
  fb::OutOfSlabs out_of_slabs = fb::OutOfSlabs::Wait;
  std::vector<std::pair<std::string, double>> metrics;
  std::vector<fb::ExpertTokens> expert_tokens;
  std::vector<fb::ExpertTokens> expert_lost;  // of experts with lost tokens
  uint64_t staleness_max = 0;                 // steps; 0: any
  uint32_t timeout_ms = 0;
  bool no_wait = false;              // begin() does not wait for the daemon's answer
  std::vector<UnitId> memory_units;  // units of the plan that are not written
  // If the share exceeds the arena, its slabs are free again as soon as they are written.
  bool streams = false;
  uint64_t plan_ns = 0;         // time that the caller took to make the plan
  std::vector<BlobSpec> blobs;  // of this rank
};

// A place in the arena that other code fills.
struct Place {
  MutableByteView memory;
  uint64_t id = 0;  // for Snapshot::filled()
};

// Slabs that a streaming snapshot has free or requested while it fills one.
inline constexpr uint32_t kSlabsAhead = 4;

class Snapshot {
 public:
  static Result<std::shared_ptr<Snapshot>> begin(Session& session, SnapshotOptions options);

  Status write(UnitId unit, uint64_t offset, ByteView data);
  // snapshot_blobs.cc. Writes the next bytes of a declared blob.
  Status write_blob(const std::string& blob_name, bool global, ByteView data);
  // snapshot_places.cc. Reserves at most `length` bytes; fewer at a slab's end. timeout_ms 0: the
  // timeout of the options.
  Result<Place> reserve(UnitId unit, uint64_t offset, uint64_t length, uint32_t timeout_ms);
  Status filled(uint64_t place, uint32_t crc32c);
  Status end();
  void abort(const std::string& reason);
  Status wait(fb::SnapshotLevel level, const Deadline& deadline);

  struct Info {
    fb::SnapshotLevel level = fb::SnapshotLevel::Open;
    std::optional<Error> failure;
    uint64_t bytes = 0;
    uint64_t stall_ns = 0;  // the caller was blocked: plan_ns of the options, and all calls
    uint64_t wait_ns = 0;
    uint64_t durable_ns = 0;
    SnapshotTimings timings;  // of this rank; ckptd's parts: of the whole snapshot, once settled
    std::string alarms;       // of a durable snapshot; empty: none
  };
  const Info& info() const { return info_; }
  bool ended() const { return ended_; }
  Epoch epoch() const { return begin_.epoch; }
  bool grows() const { return !begin_.grown.empty(); }
  Session* session() const { return session_; }  // null once the session is closed

  // -- called by the session ---------------------------------------------------------------------
  void take_state(const fb::SnapshotStateT& state);
  void take_slabs(const fb::SlabsLeasedT& leased);
  void take_error(const fb::ErrorReplyT& error);
  void forget_seal(uint32_t slab);
  void reopen();
  void fail(Error error);
  void session_closes();

 private:
  // A fragment or blob of this rank, and how much of it is written.
  struct Share {
    UnitRange range;
    uint64_t written = 0;
    bool memory_only = false;
  };
  // A slab being filled.
  struct Filling {
    uint32_t slab = 0;
    SlabLayout layout;
    std::vector<fb::SealedFragment> fragments;
    size_t lent = 0;  // places that are still being filled
  };
  struct Lent {
    uint32_t slab = 0;
    const std::byte* memory = nullptr;  // start of the slab, in the mapping at the time of lending
    size_t fragment = 0;
  };
  struct Seal {
    uint32_t slab = 0;
    uint64_t payload_bytes = 0;
    std::vector<fb::SealedFragment> fragments;
  };
  // Adds its lifetime to a total.
  class Timed {
   public:
    explicit Timed(uint64_t& total_ns) : total_ns_(total_ns) {}
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;
    ~Timed() { total_ns_ += ns_since(start_); }

   private:
    uint64_t& total_ns_;
    Clock::time_point start_ = Clock::now();
  };
  // Adds its lifetime to the stall. Adds its lifetime without waits for slabs and seals to the
  // copy. Reads the clock once for both, since write() may be called for small pieces.
  class Writing {
   public:
    explicit Writing(Info& info) : info_(info), others_ns_(others_ns()) {}
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;
    ~Writing() {
      const uint64_t all_ns = ns_since(start_);
      info_.stall_ns += all_ns;
      info_.timings.copy_ns += all_ns - std::min(all_ns, others_ns() - others_ns_);
    }

   private:
    uint64_t others_ns() const { return info_.timings.slab_wait_ns + info_.timings.seal_ns; }

    Info& info_;
    const uint64_t others_ns_;
    const Clock::time_point start_ = Clock::now();
  };

  Snapshot(Session& session, SnapshotOptions options);
  Status prepare();
  void plan_slabs(const std::array<std::vector<uint64_t>, 2>& lengths);
  Status ask();
  Status check_open() const;
  std::string name() const;
  std::string label(UnitId unit) const;  // "unit layers.0", "blob rng"
  Result<Share*> find_share(UnitId unit, uint64_t offset, uint64_t length);
  // Written bytes and memory-only bytes use separate slabs.
  std::optional<Filling>& filling_for(const Share& share) { return filling_[share.memory_only]; }
  Status prepare_memory_units();
  Status prepare_blobs(std::vector<uint64_t>& lengths);
  Status prepare_growth();
  // Error if the daemon is known to be older than something that this snapshot has.
  Status check_daemon_takes_all() const;
  Status acquire_slab(std::optional<Filling>& filling, const Deadline& deadline);
  bool request_slabs(uint32_t count);
  void request_ahead();
  static bool continues_last(const Filling& filling, const Share& share);
  static bool find_room(const Filling& filling, const Share& share, uint64_t* place,
                        uint64_t* room);
  void append(Filling& filling, Share& share, uint64_t place, ByteView data);
  Place lend(Filling& filling, Share& share, uint64_t at, uint64_t length);
  Filling& filling_of(uint32_t slab);
  bool is_open(const Filling& filling) const;
  void close_slab(std::optional<Filling>& filling);
  void seal(Filling filling);
  void post_seal(const Seal& seal);
  void send_abort(const std::string& reason);
  Deadline deadline() const { return Deadline::after_ms(options_.timeout_ms); }

  Session* session_;
  SnapshotOptions options_;
  fb::BeginSnapshotT begin_;
  std::vector<Share> shares_;  // ascending by unit and offset
  UnitId first_blob_ = kFirstBlob;
  Clock::time_point began_at_ = Clock::now();
  bool acknowledged_ = false;  // the daemon knows this snapshot; a new daemon must be told
  bool ended_ = false;
  Info info_;

  std::deque<uint32_t> free_slabs_;                // leased, still unused
  uint32_t slabs_expected_ = 0;                    // requested, not yet leased
  uint32_t slabs_to_request_ = 0;                  // of a streaming snapshot: needed later
  std::array<std::optional<Filling>, 2> filling_;  // by Share::memory_only
  std::vector<Filling> closed_;                    // full, but with places still being filled
  std::map<uint64_t, Lent> lent_;
  Clock::time_point lending_since_{};  // since when at least one place is lent
  uint64_t next_place_ = 1;
  std::vector<Seal> seals_;
  bool seals_complete_ = true;      // false once a sealed slab was leased again
  std::vector<uint64_t> requests_;  // seals and leases whose errors belong to this snapshot
};

}  // namespace ckpt::lib
