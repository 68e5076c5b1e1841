// Training without a program around it: ranks are threads, the text is made up. Needs no test
// framework: tests, checks on a GPU and benches run it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/loop.h"

namespace moetrain {

// Some hundred words in an order that can partly be learned, as bytes; the same each time.
std::vector<uint8_t> sample_text(size_t bytes);

// As small as a model with every kind of layer can be: 2 layers of `experts` experts, top 2.
TrainConfig small_config(uint32_t experts = 4);

// Parameters and moments ("m.NAME", "v.NAME"), or gradients, by name. Elements that a rank does not
// own of a sharded expert are NaN.
using State = std::map<std::string, std::vector<float>>;

// Adds the elements that `from`, another rank's state, has and `to` lacks. Returns how many both
// have with other values.
size_t merge(State& to, const State& from);

// One rank's model and how far it has come. Used from the rank's thread.
class RankTraining {
 public:
  using BeforeWrite = std::function<void(const WeightState&)>;

  // Parameters are drawn from the seed. Device, group, configuration and text outlive it.
  // `placement`: none is static_placement().
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
  const std::vector<float>& losses() const { return losses_; }  // of every step that was done
  const std::vector<double>& norms() const { return norms_; }   // likewise, of the gradient
  const std::vector<StepTraffic>& traffic() const { return traffic_; }  // likewise, of all ranks
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

// `body` for each of so many ranks, in threads, each with a device of its own. The first error,
// once all have come to their end; those who wait for a rank that has failed do at once. `beside`:
// their communicators have a thread each (comm/comm_thread.h).
Status on_ranks(uint32_t ranks, const MakeDevice& make_device,
                const std::function<Status(Comm&, Device&)>& body, bool beside = false);

struct Training {
  TrainConfig config;
  std::span<const uint8_t> text;
  uint32_t ranks = 1;
  uint64_t steps = 1;
  MakeDevice make_device;
  std::function<void(Model&)> prepare = {};     // once the parameters have been drawn
  const ComputePlacement* placement = nullptr;  // of so many ranks; none is static_placement()
  ExpertState experts = ExpertState::kReplicated;
  bool beside = false;  // each rank has a communication thread
};
struct TrainedRank {
  std::vector<float> losses;
  Progress progress;
  State state;
  State gradients;
};
// What became of each rank.
Result<std::vector<TrainedRank>> train(const Training& training);

}  // namespace moetrain
