#include "trainer/parallel/expert_pipeline.h"

#include <utility>

#include "formats/base/assert.h"

namespace moetrain {

ExpertPipeline::ExpertPipeline(uint32_t layers, Exchanges exchanges)
    : layers_(layers), exchanges_(std::move(exchanges)) {
  set_schedule({}, unread_profile_);
}

void ExpertPipeline::set_schedule(const ExpertSchedule& schedule, StepProfile& profile) {
  CKPT_ASSERT(schedule.prefetch <= kPrefetchMax);
  schedule_ = schedule;
  profile_ = &profile;
  const size_t experts = weights_.empty() ? 0 : weights_.front().size();
  settle();
  weights_.resize(schedule.prefetch + 1);
  gradients_.resize(schedule.delayed_reshard ? 2 : 1);
  next_weights_ = 0;
  current_gradients_ = 0;
  set_experts(experts);
}

void ExpertPipeline::set_experts(size_t experts) {
  settle();
  for (Tensors& tensors : weights_) tensors.resize(experts);
  for (Gradients& set : gradients_) set.tensors.resize(experts);
}

CommThread* ExpertPipeline::thread_of(Comm& comm) const {
  return schedule_.overlaps() ? comm.comm_thread() : nullptr;
}

std::optional<uint32_t> ExpertPipeline::next_layer(uint32_t layer, Pass pass) const {
  if (pass == Pass::kForward) return layer + 1 < layers_ ? std::optional(layer + 1) : std::nullopt;
  return layer > 0 ? std::optional(layer - 1) : std::nullopt;
}

// Exchanges at once, or on the thread. `activity` is kRestore or kReshard.
Status ExpertPipeline::start(Comm& comm, Activity activity, uint32_t layer, Tensors& tensors,
                             Started& started) {
  started = {};
  const bool restores = activity == Activity::kRestore;
  const Begin& begin = restores ? exchanges_.restore : exchanges_.reshard;
  CommThread* const thread = thread_of(comm);
  if (thread == nullptr) {
    const StepProfile::Timer timer(*profile_, activity, Lane::kCompute, layer);
    CKPT_ASSIGN(const LayerExchange exchange, begin(layer, tensors, Mover::kRankThread));
    return exchange.move(comm);
  }
  CKPT_ASSIGN(LayerExchange exchange, begin(layer, tensors, Mover::kOtherThread));
  profile_->mark(restores ? Activity::kSubmitRestore : Activity::kSubmitReshard, layer);
  started.finish = std::move(exchange.finish);
  started.job = thread->submit([this, activity, layer, move = std::move(exchange.move)](Comm& own) {
    const StepProfile::Timer timer(*profile_, activity, Lane::kCommunication, layer);
    return move(own);
  });
  return {};
}

// `activity` is kWaitRestore or kWaitReshard.
Status ExpertPipeline::wait(Comm& comm, Activity activity, uint32_t layer, Started& started) {
  if (!started.job) return {};
  const StepProfile::Timer timer(*profile_, activity, Lane::kCompute, layer);
  const Started ended = std::exchange(started, {});
  CKPT_TRY(comm.comm_thread()->wait(*ended.job));
  return ended.finish ? ended.finish() : Status();
}

Status ExpertPipeline::start_restore(Comm& comm, uint32_t layer, Pass pass) {
  Restore& restore = restores_.emplace_back();
  restore.layer = layer;
  restore.pass = pass;
  restore.set = next_weights_;
  next_weights_ = (next_weights_ + 1) % weights_.size();
  return start(comm, Activity::kRestore, layer, weights_[restore.set], restore);
}

Result<ExpertPipeline::Tensors*> ExpertPipeline::weights(Comm& comm, uint32_t layer, Pass pass) {
  // No earlier layer has started the restore of a pass's first layer.
  if (restores_.empty()) CKPT_TRY(start_restore(comm, layer, pass));
  CKPT_ASSERT(restores_.front().layer == layer && restores_.front().pass == pass);
  const uint32_t ahead = thread_of(comm) == nullptr ? 0 : schedule_.prefetch;
  while (restores_.size() <= ahead) {
    const std::optional<uint32_t> next = next_layer(restores_.back().layer, pass);
    if (!next) break;
    CKPT_TRY(start_restore(comm, *next, pass));
  }
  Restore& restore = restores_.front();
  CKPT_TRY(wait(comm, Activity::kWaitRestore, layer, restore));
  Tensors* const restored = &weights_[restore.set];
  restores_.pop_front();
  return restored;
}

Result<ExpertPipeline::Tensors*> ExpertPipeline::gradients(Comm& comm) {
  Gradients& set = gradients_[current_gradients_];
  CKPT_TRY(wait(comm, Activity::kWaitReshard, set.layer, set));
  return &set.tensors;
}

Status ExpertPipeline::give(Comm& comm, uint32_t layer) {
  Gradients& set = gradients_[current_gradients_];
  set.layer = layer;
  CKPT_TRY(start(comm, Activity::kReshard, layer, set.tensors, set));
  if (!schedule_.delayed_reshard) return wait(comm, Activity::kWaitReshard, layer, set);
  if (set.job) current_gradients_ = (current_gradients_ + 1) % gradients_.size();
  return {};
}

Status ExpertPipeline::finish(Comm& comm) {
  // From the older of two sets to the newer one.
  for (size_t i = 0; i < gradients_.size(); ++i) {
    Gradients& set = gradients_[(current_gradients_ + i) % gradients_.size()];
    CKPT_TRY(wait(comm, Activity::kWaitReshard, set.layer, set));
  }
  CKPT_ASSERT(restores_.empty());
  return {};
}

void ExpertPipeline::settle() {
  const auto end = [](Started& started) {
    if (started.job) (void)started.job->settle();
    started = {};
  };
  for (Restore& restore : restores_) end(restore);
  restores_.clear();
  for (Gradients& set : gradients_) end(set);
}

uint64_t ExpertPipeline::memory_bytes() const {
  uint64_t bytes = 0;
  for (const Tensors& tensors : weights_) {
    for (const Tensor& tensor : tensors) bytes += tensor.room_bytes();
  }
  for (const Gradients& set : gradients_) {
    for (const Tensor& tensor : set.tensors) bytes += tensor.room_bytes();
  }
  return bytes;
}

}  // namespace moetrain
