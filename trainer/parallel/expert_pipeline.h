// ExpertPipeline: keeps the expert weights and gradients of a few layers in memory, and runs their
// exchanges ahead of and behind the rank's thread, by ExpertSchedule.
//
//   forward, layer l, prefetch 2                 backward, layer l, delayed re-shard
//     rows of l are exchanged                      rows of l are exchanged
//     weights(l): submits the restore of l + 2     weights(l): submits the restore of l - 2
//                 waits for that of l                          waits for that of l
//     experts of l                                 gradients(): waits for the re-shard of l + 2
//                                                  experts of l
//                                                  give(l): submits the re-shard of l
//
// Exchanges run on the communicator's thread in the order of submission, so gradients are added in
// the order in which backward gives them: (micro-batch, rank) for every layer. Where the
// communicator has no thread, every exchange runs at once on the rank's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "trainer/comm/comm_thread.h"
#include "trainer/model/expert_schedule.h"
#include "trainer/model/expert_store.h"
#include "trainer/model/step_profile.h"
#include "trainer/parallel/shard_exchange.h"

namespace moetrain {

// Belongs to one rank, used from its thread. Destroyed, or settled, before what its exchanges use.
class ExpertPipeline {
 public:
  using Tensors = std::vector<Tensor>;  // [i]: of the i-th expert that this rank computes
  // Begins the exchange of a layer's weights, or gradients.
  using Begin = std::function<Result<LayerExchange>(uint32_t layer, Tensors& tensors, Mover mover)>;
  struct Exchanges {
    Begin restore;
    Begin reshard;
  };

  ExpertPipeline(uint32_t layers, Exchanges exchanges);
  ~ExpertPipeline() { settle(); }
  ExpertPipeline(const ExpertPipeline&) = delete;
  ExpertPipeline& operator=(const ExpertPipeline&) = delete;

  // Between steps. `profile` outlives the pipeline.
  void set_schedule(const ExpertSchedule& schedule, StepProfile& profile);
  const ExpertSchedule& schedule() const { return schedule_; }
  // Every set of tensors has room for this many experts. Between steps.
  void set_experts(size_t experts);

  // Weights of `layer`, valid until the next call. Layers follow each other as in a pass. A
  // collective.
  Result<Tensors*> weights(Comm& comm, uint32_t layer, Pass pass);
  // Tensors for the gradients of one layer, until give() takes them. They have any content.
  Result<Tensors*> gradients(Comm& comm);
  // Re-shards the gradients of `layer`, for which gradients() was called last. A collective.
  Status give(Comm& comm, uint32_t layer);
  // Waits until all gradients are with their owners.
  Status finish(Comm& comm);
  // Waits until no exchange runs, and drops all results and errors.
  void settle();

  uint64_t memory_bytes() const;

 private:
  // An exchange that was started. Without a job it is complete.
  struct Started {
    std::optional<CommThread::Job> job;
    std::function<Status()> finish;
  };
  struct Restore : Started {
    uint32_t layer = 0;
    Pass pass = Pass::kForward;
    size_t set = 0;
  };
  struct Gradients : Started {
    Tensors tensors;
    uint32_t layer = 0;
  };

  CommThread* thread_of(Comm& comm) const;
  std::optional<uint32_t> next_layer(uint32_t layer, Pass pass) const;
  Status start_restore(Comm& comm, uint32_t layer, Pass pass);
  Status start(Comm& comm, Activity activity, uint32_t layer, Tensors& tensors, Started& started);
  Status wait(Comm& comm, Activity activity, uint32_t layer, Started& started);

  const uint32_t layers_;
  const Exchanges exchanges_;
  ExpertSchedule schedule_;
  StepProfile unread_profile_;  // used until set_schedule()
  StepProfile* profile_ = &unread_profile_;
  std::vector<Tensors> weights_;      // one set more than layers are prefetched
  size_t next_weights_ = 0;           // the set of the next restore
  std::deque<Restore> restores_;      // started, and not taken yet
  std::vector<Gradients> gradients_;  // two sets if re-sharding is delayed
  size_t current_gradients_ = 0;
};

}  // namespace moetrain
