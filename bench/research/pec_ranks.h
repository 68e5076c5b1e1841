// Ranks of a model that does not exist: threads of the bench, each with a session, that save units
// of its shapes through libckpt. Bytes are made as they are written; nobody holds them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/research/pec_model.h"
#include "bench/research/pec_plan.h"
#include "ckptd/io/aligned_buffer.h"
#include "client/include/ckpt/ckpt.h"

namespace bench {

inline constexpr char kPecRun[] = "pec";

class PecRanks {
 public:
  struct Options {
    std::string socket;
    uint32_t ranks = 8;
    uint64_t arena_bytes = 0;  // of each rank
    uint64_t slab_bytes = 16ull << 20;
    ckpt_alarms alarms = CKPT_ALARMS_DEFAULT;
  };
  // Opens the sessions, registers the units and joins the group.
  static ckpt::Result<std::unique_ptr<PecRanks>> open(const Options& options,
                                                      const std::vector<PecUnit>& units);
  ~PecRanks();
  PecRanks(const PecRanks&) = delete;
  PecRanks& operator=(const PecRanks&) = delete;

  struct Saved {
    double durable_seconds = 0;           // from the first begin until every rank knows
    double stall_seconds = 0;             // of the rank that was blocked longest
    std::vector<uint64_t> bytes_by_rank;  // that each wrote, as libckpt counts
    uint64_t commits = 0;                 // a snapshot that does not fit into the arenas is several
  };
  ckpt::Result<Saved> save(const PecPlan& plan);

  // Bytes that the daemon has written into segments so far, headers and padding included.
  ckpt::Result<uint64_t> segment_bytes_written();

 private:
  struct RankState {
    ckpt_session* session = nullptr;
    double stall_seconds = 0;
    uint64_t bytes = 0;
  };
  PecRanks(const Options& options, const std::vector<PecUnit>& units)
      : options_(options), units_(units) {}
  ckpt::Status make_pool();
  ckpt::Status join(uint32_t rank);
  ckpt::Status save_part(uint32_t rank, const PecPlan& part, uint64_t step);
  ckpt::Status write_share(ckpt_snapshot* snapshot, const moetrain::Share& share, uint64_t step);

  const Options options_;
  const std::vector<PecUnit> units_;
  ckptd::AlignedBuffer pool_;  // incompressible floats that every write takes its bytes from
  std::vector<RankState> ranks_;
  uint64_t step_ = 0;
};

}  // namespace bench
