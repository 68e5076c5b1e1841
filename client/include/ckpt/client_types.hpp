// Option and result structs of client.hpp. The fields have the same meaning as in ckpt.h.
#ifndef CKPT_CLIENT_TYPES_HPP_
#define CKPT_CLIENT_TYPES_HPP_

#include <ckpt/ckpt.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::client {

struct OpenOptions {
  std::string socket;  // empty: $CKPTD_SOCKET
  std::string run;     // empty: $CKPTD_RUN
  std::string client_name;
  uint64_t arena_bytes = 0;
  uint64_t slab_bytes = 0;
  bool control = false;
  uint32_t timeout_ms = 0;
  ckpt_alarms alarms = CKPT_ALARMS_DEFAULT;
  uint32_t heartbeat_ms = 0;                    // 0: none
  int (*interrupted)(void* context) = nullptr;  // ends waits
  void* interrupted_context = nullptr;
  // ckpt_liveness.waiting: called once opening has waited for room for a second. Must not throw.
  std::function<void(const std::string& why)> waiting = {};
};

struct TensorInfo {
  std::string name;
  std::string dtype;  // "F32", "BF16", "F4", ...
  std::vector<uint64_t> shape;
  uint64_t offset = 0;  // bytes from the start of the unit
};

struct UnitInfo {
  std::string name;
  int64_t layer = -1;   // -1: none
  int64_t expert = -1;  // -1: none
  std::string part;     // "", "weights" or "optimizer"
  uint64_t bytes = 0;
  std::vector<TensorInfo> tensors;
  ckpt_codec codec = CKPT_CODEC_DEFAULT;
  uint32_t flags = 0;  // CKPT_UNIT_CONSTANT
};

struct JoinOptions {
  uint32_t rank = 0;
  uint32_t size = 1;
  ckpt_resume resume = CKPT_RESUME_CONTINUE;
  uint32_t resume_lineage = 0;
  uint64_t resume_step = 0;
  uint32_t timeout_ms = 0;
  bool elastic = false;
  uint64_t member = 0;
  uint32_t grace_ms = 0;
  // ckpt_join_options.waiting: called once the join has waited for a second. Must not throw.
  std::function<void(const std::string& why)> waiting = {};
  uint64_t job = 0;  // see ckpt_join_options
};

struct ViewPoint {
  uint32_t lineage = 0;
  uint64_t step = 0;
};

struct HoldOptions {
  std::string run;  // empty: the session's
  uint32_t lineage = 0;
  uint64_t step = 0;
  bool latest = false;
  std::string tag;
  bool newest = false;
  uint32_t timeout_ms = 0;
};

struct Epoch {
  uint64_t epoch = 0;
  uint32_t rank = 0;
  uint32_t size = 0;
  uint32_t lineage = 0;
  std::optional<ViewPoint> resume;      // nothing: start from nothing, or go on
  bool goes_on = false;                 // with the state of the previous epoch
  std::vector<uint64_t> members;        // of an elastic group, by rank
  std::vector<int32_t> previous_ranks;  // if goes_on; -1: new
  uint32_t previous_size = 0;
};

struct Metric {
  std::string name;
  double value = 0;
};

// Named bytes of one commit: see ckpt_blobs.h.
struct BlobSpec {
  std::string name;
  uint64_t bytes = 0;
  bool global = false;
};

struct SnapshotOptions {
  uint64_t step = 0;
  uint32_t attempt = 0;
  std::vector<uint32_t> units;
  std::vector<ckpt_fragment> fragments;  // of all ranks
  ckpt_out_of_slabs out_of_slabs = CKPT_SLABS_WAIT;
  std::vector<Metric> metrics;
  uint32_t timeout_ms = 0;
  std::vector<ckpt_expert_tokens> expert_tokens;  // from any one rank
  uint64_t staleness_max = 0;                     // steps; 0: any
  bool no_wait = false;                           // begin() asks, the first write() gets the answer
  std::vector<uint32_t> memory_units;             // units of `units` that are not written
  std::vector<uint64_t> expert_lost;              // one per entry of expert_tokens, or empty
  bool streams = false;                           // may be larger than the arena
  uint64_t plan_ns = 0;                           // time taken to make the plan
  std::vector<BlobSpec> blobs;                    // that this rank writes
};

// Parts of a snapshot's time, as in ckpt_snapshot_info: plan to seal of this rank, write to journal
// of the snapshot as a whole.
struct SnapshotTimings {
  uint64_t plan_ns = 0;
  uint64_t begin_ns = 0;
  uint64_t slab_wait_ns = 0;
  uint64_t copy_ns = 0;
  uint64_t seal_ns = 0;
  uint64_t write_ns = 0;
  uint64_t sync_ns = 0;
  uint64_t journal_ns = 0;
};

struct SnapshotInfo {
  ckpt_level level = CKPT_LEVEL_OPEN;
  ckpt_status failure = CKPT_OK;
  int detail = CKPT_DETAIL_NONE;  // a ckpt_detail
  std::string reason;
  uint64_t bytes = 0;
  uint64_t stall_ns = 0;
  uint64_t wait_ns = 0;
  uint64_t durable_ns = 0;
  std::string alarms;  // with DURABLE; empty: none
  SnapshotTimings timings;
};

struct RestoreOptions {
  std::string run;  // empty: the session's
  uint32_t lineage = 0;
  uint64_t step = 0;
  bool latest = false;
  std::string tag;  // not empty: this tag
  bool exact = false;
  uint32_t timeout_ms = 0;
  bool newest = false;                       // each unit's newest version not after `step`
  bool memory = false;                       // include versions that are only in memory
  ckpt_direct direct = CKPT_DIRECT_DEFAULT;  // of restores into a GPU's memory
};

// A blob of a commit. `unit` names it in a ckpt_range.
struct Blob {
  std::string name;
  uint32_t rank = 0;
  bool global = false;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
  uint32_t unit = 0;
};
struct Blobs {
  ViewPoint commit;
  std::vector<Blob> blobs;
};

struct Restored {
  ViewPoint version;
  std::string note;  // not empty: why the version is older than the view's
  uint64_t bytes_memory = 0;
  uint64_t bytes_disk = 0;
  ckpt_level level = CKPT_LEVEL_DURABLE;
};

}  // namespace ckpt::client

#endif  // CKPT_CLIENT_TYPES_HPP_
