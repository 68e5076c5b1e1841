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

// Parameters and moments ("m.NAME", "v.NAME"), or gradients, by name.
using State = std::map<std::string, std::vector<float>>;

// One rank's model and how far it has come. Used from the rank's thread.
class RankTraining {
 public:
  using BeforeWrite = std::function<void(const Parameter&)>;

  // Parameters are drawn from the seed. Device, group, configuration and text outlive it.
  // `placement`: none is static_placement().
  static Result<std::unique_ptr<RankTraining>> make(Device& device, Comm& comm,
                                                    const TrainConfig& config,
                                                    std::span<const uint8_t> text,
                                                    const ExpertPlacement* placement = nullptr);

  Status steps(uint64_t count, const BeforeWrite& before_write = {});

  Device& device() { return model_->device(); }
  Model& model() { return *model_; }
  Progress& progress() { return progress_; }
  const std::vector<float>& losses() const { return losses_; }  // of every step that was done
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
};

using MakeDevice = std::function<Result<std::unique_ptr<Device>>()>;

// `body` for each of so many ranks, in threads, each with a device of its own. The first error,
// once all have come to their end; those who wait for a rank that has failed do at once.
Status on_ranks(uint32_t ranks, const MakeDevice& make_device,
                const std::function<Status(Comm&, Device&)>& body);

struct Training {
  TrainConfig config;
  std::span<const uint8_t> text;
  uint32_t ranks = 1;
  uint64_t steps = 1;
  MakeDevice make_device;
  std::function<void(Model&)> prepare = {};    // once the parameters have been drawn
  const ExpertPlacement* placement = nullptr;  // of so many ranks; none is static_placement()
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
