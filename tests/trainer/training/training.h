// Training without a program around it: ranks are threads, the text is generated. Needs no test
// framework: tests, checks on a GPU and benches use it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/loop.h"

namespace moetrain {

// Some hundred words in a partly learnable order, as bytes; the same in every call.
std::vector<uint8_t> sample_text(size_t bytes);

// Smallest model with every kind of layer: 2 layers of `experts` experts, top 2.
TrainConfig small_config(uint32_t experts = 4);

// Parameters and moments ("m.NAME", "v.NAME"), or gradients, by name. Elements of a sharded expert
// that a rank does not own are NaN.
using State = std::map<std::string, std::vector<float>>;

// Fills elements that `to` lacks (NaN) from `from`, another rank's state. Returns the number of
// elements that both have, with different values.
size_t merge(State& to, const State& from);

// One rank's model and its progress. Used from the rank's thread.
class RankTraining {
 public:
  using BeforeWrite = std::function<void(const WeightState&)>;

  // Parameters are drawn from the seed. Device, group, configuration and text must outlive this.
  // `placement`: null for static_placement().
  static Result<std::unique_ptr<RankTraining>> make(Device& device, Comm& comm,
                                                    const TrainConfig& config,
                                                    std::span<const uint8_t> text,
                                                    const ComputePlacement* placement = nullptr,
                                                    ExpertState experts = ExpertState::kReplicated,
                                                    const ExpertSchedule& schedule = {});

  Status steps(uint64_t count, const BeforeWrite& before_write = {});

  Device& device() { return model_->device(); }
  Model& model() { return *model_; }
  Progress& progress() { return progress_; }
  const std::vector<float>& losses() const { return losses_; }          // of every completed step
  const std::vector<double>& norms() const { return norms_; }           // of the gradient, per step
  const std::vector<StepTraffic>& traffic() const { return traffic_; }  // of all ranks, per step
  Result<State> state();
  Result<State> gradients();  // of the last step

 private:
  RankTraining(Comm& comm, const TrainConfig& config, std::span<const uint8_t> text)
      : comm_(comm), trainer_(config, text) {}

  Comm& comm_;
  Trainer trainer_;
  std::unique_ptr<Model> model_;
  Progress progress_;
  std::vector<float> losses_;
  std::vector<double> norms_;
  std::vector<StepTraffic> traffic_;
};

using MakeDevice = std::function<Result<std::unique_ptr<Device>>()>;

// Runs `body` for each rank, in threads, each with its own device. Returns the first error when all
// have ended; a failed rank ends the waits of the others at once. `threaded`: each communicator has
// its own thread (comm/comm_thread.h).
Status on_ranks(uint32_t ranks, const MakeDevice& make_device,
                const std::function<Status(Comm&, Device&)>& body, bool threaded = false);

struct Training {
  TrainConfig config;
  std::span<const uint8_t> text;
  uint32_t ranks = 1;
  uint64_t steps = 1;
  MakeDevice make_device;
  std::function<void(Model&)> prepare = {};     // called after the parameters were drawn
  const ComputePlacement* placement = nullptr;  // for `ranks` ranks; null: static_placement()
  ExpertState experts = ExpertState::kReplicated;
  bool threaded = false;  // each rank has a communication thread
};
struct TrainedRank {
  std::vector<float> losses;
  Progress progress;
  State state;
  State gradients;
};
// Trains; returns the result of each rank.
Result<std::vector<TrainedRank>> train(const Training& training);

}  // namespace moetrain
