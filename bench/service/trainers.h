// A group of trainer ranks. Each rank is a thread of the bench with its own session and state, and
// saves through libckpt as any trainer would.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckptd/io/aligned_buffer.h"
#include "client/include/ckpt/ckpt.h"
#include "formats/base/result.h"

namespace bench {

class Trainers {
 public:
  struct Options {
    std::string socket;
    uint32_t ranks = 4;
    uint64_t bytes = 2ull << 30;  // of all ranks together
    uint64_t slab_bytes = 64ull << 20;
    uint64_t unit_bytes = 16ull << 20;
    bool join = true;  // false for restore only: joining would start an epoch and a new lineage
  };
  // Bytes for all ranks: each rank's share in whole slabs, plus ckptd's slabs for restores.
  static uint64_t arena_bytes(const Options& options);
  // Opens the sessions and joins the group; fills every rank's state with incompressible bytes.
  static ckpt::Result<std::unique_ptr<Trainers>> open(const Options& options);
  ~Trainers();
  Trainers(const Trainers&) = delete;
  Trainers& operator=(const Trainers&) = delete;

  struct Saved {
    double seconds = 0;        // from the first begin until the last rank knows it is durable
    double stall_seconds = 0;  // of the rank that was blocked longest
    double wait_seconds = 0;   // part of the stall: waits for the daemon or for slabs
  };
  // Changes some bytes of every unit first; that is not timed.
  ckpt::Result<Saved> save(uint64_t step);
  // Every rank restores its own bytes from the view of the step, all at the same time. Returns
  // seconds from the first request until the last rank has all of its bytes, verified.
  ckpt::Result<double> restore(uint64_t step);
  // Checks that the last restore returned the saved bytes of that step; kCorrupt names the rank.
  ckpt::Status check_restored(uint64_t step);

  double open_seconds() const { return ranks_.front().open_seconds; }  // rank 0's session

  // Rank 0's state, to compare with a plain copy of the same bytes.
  ckpt::ByteView state() const { return ranks_.front().state.bytes(); }

 private:
  struct RankState {
    ckpt_session* session = nullptr;
    double open_seconds = 0;
    ckptd::AlignedBuffer state;
    ckptd::AlignedBuffer restored;  // made by the first restore
  };
  explicit Trainers(const Options& options) : options_(options) {}
  ckpt::Status open_ranks();
  ckpt::Status open_rank(uint32_t rank);
  void change_state(uint64_t step);
  ckpt::Status save_rank(uint32_t rank, uint64_t step, Saved* saved);
  ckpt::Status restore_rank(uint32_t rank, uint64_t step);

  const Options options_;
  std::vector<RankState> ranks_;
  std::vector<ckpt_fragment> fragments_;  // the plan, of all ranks
  std::vector<uint32_t> units_;
};

}  // namespace bench
