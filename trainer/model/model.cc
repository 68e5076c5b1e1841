#include "trainer/model/model.h"

#include <algorithm>
#include <numeric>

#include "trainer/model/attention_block.h"
#include "trainer/model/forced_routing.h"
#include "trainer/model/moe_block.h"
#include "trainer/model/norm_shape.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Positions in dense_parameters().
constexpr size_t kEmbedding = 0;
constexpr size_t kFirstLayer = 1;
constexpr size_t kPerLayer = 7;

// Sums over ranks and layers that every rank needs before a micro-batch's backward.
struct BatchTotals {
  std::vector<int64_t> chosen;      // [top_k, experts]: tokens whose k-th choice is e
  std::vector<double> probability;  // [experts]
  int64_t router_tokens = 0;        // tokens x layers
  int64_t targets = 0;
  double cross_entropy = 0;
};

Status check_shape(const ModelConfig& config, const ExpertStore& store) {
  const ComputePlacement& placement = store.placement();
  if (placement.layers() == config.layers && placement.experts == config.experts) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "model: {} layers of {} experts, the store holds {} of {}", config.layers,
                    config.experts, placement.layers(), placement.experts);
}

class MixtralModel final : public Model {
 public:
  MixtralModel(Device& device, const ModelConfig& config, std::unique_ptr<ExpertStore> store,
               const ExpertSchedule& schedule, ForcedRouting forced)
      : device_(device),
        config_(config),
        schedule_(schedule),
        forced_(std::move(forced)),
        store_(std::move(store)),
        rope_(device, config_) {
    store_->set_schedule(schedule_, profile_);
    for (ParameterSpec& spec : dense_parameters(config_)) {
      dense_.emplace_back(device, std::move(spec));
    }
    for (uint32_t layer = 0; layer < config_.layers; ++layer) {
      attention_.emplace_back(device, config_, rope_);
      moe_.emplace_back(device, config_, layer, profile_);
    }
    routing_counts_.resize(size_t{config_.layers} * config_.experts);
  }

  void initialise(uint64_t seed) override {
    for (Parameter& parameter : dense_) {
      moetrain::initialise(parameter, seed, config_.init_range);
    }
    for (OwnedRange& range : store_->owned()) moetrain::initialise(range, config_, seed);
  }

  void parameters_changed() override {
    for (Parameter& parameter : dense_) parameter.value_changed();
    for (OwnedRange& range : store_->owned()) range.value_changed();
  }

  Device& device() override { return device_; }
  const ModelConfig& config() const override { return config_; }
  ExpertStore& experts() override { return *store_; }
  std::span<Parameter> dense() override { return dense_; }
  std::span<const int64_t> routing_counts() const override { return routing_counts_; }
  ExpertLoad expert_load() const override { return load_; }
  ExpertWork expert_work() const override {
    ExpertWork work{.rows = own_rows_};
    for (const MoeBlock& block : moe_) work.cpu_ns += block.expert_ns();
    return work;
  }
  StepTraffic traffic() const override {
    const ExpertTraffic experts = store_->traffic();
    StepTraffic traffic{.weights = experts.weights, .gradients = experts.gradients};
    for (const MoeBlock& block : moe_) traffic.tokens += block.received_bytes();
    return traffic;
  }
  StepProfile& profile() override { return profile_; }

  Status replace_experts(std::unique_ptr<ExpertStore> store) override {
    CKPT_TRY(check_shape(config_, *store));
    store_ = std::move(store);
    store_->set_schedule(schedule_, profile_);
    return {};
  }

  std::vector<ParameterPart> parts() override {
    std::vector<ParameterPart> all;
    all.reserve(dense_.size() + 3 * store_->owned().size());
    for (Parameter& parameter : dense_) all.push_back(whole(parameter));
    for (OwnedRange& range : store_->owned()) {
      for (ParameterPart& part : parts_of(range, config_)) all.push_back(std::move(part));
    }
    return all;
  }

  void begin_step() override {
    for (Parameter& parameter : dense_) parameter.clear_gradient();
    store_->begin_step();
    std::ranges::fill(routing_counts_, 0);
    load_ = {};
    own_rows_ = 0;
    for (MoeBlock& block : moe_) block.begin_step();
    profile_.begin_step();
  }

  Result<MicroBatchLoss> forward_backward(Comm& comm, const BatchShare& share,
                                          const LossScale& scale) override {
    CKPT_TRY(check(comm, share));
    CKPT_TRY(forward(comm, share));
    CKPT_ASSIGN(const BatchTotals totals, all_reduce_totals(comm));
    count_routing(comm.rank());
    CKPT_TRY(backward(comm, scale, totals));
    return loss_of(totals);
  }

  Result<MicroBatchLoss> evaluate(Comm& comm, const BatchShare& share,
                                  std::span<float> logits) override {
    CKPT_TRY(check(comm, share));
    if (!logits.empty() && logits.size() != share.tokens.size() * config_.vocab) {
      return make_error(ErrorCode::kInvalidArgument, "model: room for {} logits, {} tokens need {}",
                        logits.size(), share.tokens.size(), share.tokens.size() * config_.vocab);
    }
    CKPT_TRY(forward(comm, share));
    CKPT_ASSIGN(const BatchTotals totals, all_reduce_totals(comm));
    if (!logits.empty()) CKPT_TRY(logits_.read(logits));
    return loss_of(totals);
  }

 private:
  Parameter& last_norm() { return dense_[dense_.size() - 2]; }
  Parameter& head() { return dense_[dense_.size() - 1]; }
  AttentionParameters attention_parameters(size_t layer) {
    Parameter* at = &dense_[kFirstLayer + layer * kPerLayer];
    return {at, at + 1, at + 2, at + 3, at + 4};
  }
  MoeParameters moe_parameters(size_t layer) {
    Parameter* at = &dense_[kFirstLayer + layer * kPerLayer];
    return {at + 6, at + 5};
  }
  kernels::LinearShape to_vocab() const {
    return {tokens_, config_.hidden, config_.vocab, config_.seq_len};
  }
  kernels::CrossEntropyShape loss_shape() const { return {tokens_, config_.vocab, kIgnoredTarget}; }

  Status check(const Comm& comm, const BatchShare& share) const;
  Status forward(Comm& comm, const BatchShare& share);
  Result<BatchTotals> all_reduce_totals(Comm& comm);
  Status backward(Comm& comm, const LossScale& scale, const BatchTotals& totals);
  std::vector<float> auxiliary_gradient(const LossScale& scale, const BatchTotals& totals) const;
  MicroBatchLoss loss_of(const BatchTotals& totals) const;
  void count_routing(uint32_t rank);

  Device& device_;
  const ModelConfig config_;
  const ExpertSchedule schedule_;
  StepProfile profile_;
  const ForcedRouting forced_;
  std::unique_ptr<ExpertStore> store_;
  const RopeTable rope_;
  std::vector<Parameter> dense_;
  std::vector<AttentionBlock> attention_;
  std::vector<MoeBlock> moe_;
  std::vector<int64_t> routing_counts_;
  ExpertLoad load_;
  int64_t own_rows_ = 0;

  int64_t tokens_ = 0;
  Tensor token_ids_, targets_;
  Tensor x_;     // the residual stream
  Tensor skew_;  // what forced routing adds to a router's logits; empty without it
  Tensor normed_, inverse_rms_, logits_, log_sum_exp_, probability_sums_;
  Tensor dx_, dnormed_, dlogits_, dprobability_;
};

Status MixtralModel::check(const Comm& comm, const BatchShare& share) const {
  const ComputePlacement& placement = store_->placement();
  if (comm.size() != placement.ranks) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "model: experts are placed on {} ranks, the group has {}", placement.ranks,
                      comm.size());
  }
  if (share.tokens.size() != share.targets.size() || share.tokens.size() % config_.seq_len != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "model: {} tokens and {} targets are not whole sequences of {}",
                      share.tokens.size(), share.targets.size(), config_.seq_len);
  }
  const auto in_vocab = [&](int32_t token) {
    return token >= 0 && static_cast<uint32_t>(token) < config_.vocab;
  };
  for (size_t i = 0; i < share.tokens.size(); ++i) {
    if (!in_vocab(share.tokens[i])) {
      return make_error(ErrorCode::kInvalidArgument,
                        "model: token {} at position {} is outside the vocabulary of {}",
                        share.tokens[i], i, config_.vocab);
    }
    if (share.targets[i] != kIgnoredTarget && !in_vocab(share.targets[i])) {
      return make_error(ErrorCode::kInvalidArgument,
                        "model: target {} at position {} is outside the vocabulary of {}",
                        share.targets[i], i, config_.vocab);
    }
  }
  return {};
}

Status MixtralModel::forward(Comm& comm, const BatchShare& share) {
  const size_t tokens = share.tokens.size();
  tokens_ = static_cast<int64_t>(tokens);
  token_ids_.reshape(device_, Type::kInt32, tokens);
  token_ids_.write(share.tokens);
  targets_.reshape(device_, Type::kInt32, tokens);
  targets_.write(share.targets);
  x_.reshape(device_, Type::kFloat, tokens * config_.hidden);
  device_.embedding_forward(config_.hidden, token_ids_, dense_[kEmbedding].value, x_);
  for (size_t layer = 0; layer < config_.layers; ++layer) {
    attention_[layer].forward(attention_parameters(layer), x_);
    if (forced_.active()) {
      const auto number = static_cast<uint32_t>(layer);
      skew_.reshape(device_, Type::kFloat, tokens * config_.experts);
      skew_.write(std::span<const float>(forced_.logits(number, share.step, share.tokens)));
    }
    CKPT_TRY(moe_[layer].forward(comm, *store_, moe_parameters(layer), skew_, x_));
  }
  normed_.reshape(device_, device_.flow(), x_.size());
  inverse_rms_.reshape(device_, Type::kFloat, tokens);
  logits_.reshape(device_, Type::kFloat, tokens * config_.vocab);
  log_sum_exp_.reshape(device_, Type::kFloat, tokens);
  device_.rmsnorm_forward(norm_shape(config_, tokens_), x_, last_norm().value, normed_,
                          inverse_rms_);
  device_.linear_forward(to_vocab(), normed_, head().weights(), logits_);
  device_.cross_entropy_forward(loss_shape(), logits_, targets_, log_sum_exp_);
  return {};
}

Result<BatchTotals> MixtralModel::all_reduce_totals(Comm& comm) {
  const size_t experts = config_.experts;
  const size_t choices = config_.top_k * experts;
  std::vector<int64_t> counts(choices + 2, 0);
  probability_sums_.reshape(device_, Type::kDouble, experts);
  probability_sums_.zero();
  for (const MoeBlock& block : moe_) {
    const std::span<const int32_t> choice = block.choice();
    for (size_t i = 0; i < choice.size(); ++i) {
      ++counts[i % config_.top_k * experts + static_cast<size_t>(choice[i])];
    }
    device_.add_column_sums(tokens_, block.probabilities(), probability_sums_);
  }
  CKPT_ASSIGN(std::vector<double> sums, probability_sums_.read<double>());
  CKPT_ASSIGN(const kernels::CrossEntropySum loss, device_.read_loss());
  counts[choices] = tokens_ * config_.layers;
  counts[choices + 1] = loss.targets;
  sums.push_back(loss.loss);

  CKPT_TRY(comm.all_reduce_sum(std::span<int64_t>(counts)));
  CKPT_TRY(comm.all_reduce_sum(std::span<double>(sums)));
  BatchTotals totals;
  totals.router_tokens = counts[choices];
  totals.targets = counts[choices + 1];
  totals.cross_entropy = sums[experts];
  totals.chosen.assign(counts.begin(), counts.begin() + static_cast<int64_t>(choices));
  totals.probability.assign(sums.begin(), sums.begin() + static_cast<int64_t>(experts));
  return totals;
}

MicroBatchLoss MixtralModel::loss_of(const BatchTotals& totals) const {
  MicroBatchLoss loss{totals.cross_entropy, totals.targets, 0};
  if (totals.router_tokens == 0) return loss;
  const double tokens = static_cast<double>(totals.router_tokens);
  for (size_t i = 0; i < totals.chosen.size(); ++i) {
    loss.auxiliary += static_cast<double>(totals.chosen[i]) / tokens *
                      (totals.probability[i % config_.experts] / tokens);
  }
  loss.auxiliary *= config_.experts;
  return loss;
}

// d(auxiliary) / d(probability of expert e) is the same for every token: E * sum_k f_{k,e} /
// tokens.
std::vector<float> MixtralModel::auxiliary_gradient(const LossScale& scale,
                                                    const BatchTotals& totals) const {
  std::vector<float> gradient(config_.experts, 0.0f);
  if (totals.router_tokens == 0) return gradient;
  const double tokens = static_cast<double>(totals.router_tokens);
  for (size_t expert = 0; expert < config_.experts; ++expert) {
    int64_t chosen = 0;
    for (size_t k = 0; k < config_.top_k; ++k)
      chosen += totals.chosen[k * config_.experts + expert];
    const double fraction = static_cast<double>(chosen) / tokens;
    gradient[expert] = static_cast<float>(scale.auxiliary * config_.experts * fraction / tokens);
  }
  return gradient;
}

Status MixtralModel::backward(Comm& comm, const LossScale& scale, const BatchTotals& totals) {
  const std::vector<float> dprobability = auxiliary_gradient(scale, totals);
  dprobability_.reshape(device_, Type::kFloat, dprobability.size());
  dprobability_.write(std::span<const float>(dprobability));
  dlogits_.reshape(device_, device_.flow(), logits_.size());
  device_.cross_entropy_backward(loss_shape(), static_cast<float>(scale.cross_entropy), logits_,
                                 targets_, log_sum_exp_, dlogits_);
  dnormed_.reshape(device_, Type::kFloat, normed_.size());
  device_.linear_backward_weight(to_vocab(), dlogits_, normed_, head().sum());
  device_.linear_backward_input(to_vocab(), dlogits_, head().weights(), dnormed_);
  dx_.reshape(device_, Type::kFloat, x_.size());
  dx_.zero();
  device_.rmsnorm_backward(norm_shape(config_, tokens_), dnormed_, x_, last_norm().value,
                           inverse_rms_, dx_, last_norm().sum());
  for (size_t layer = config_.layers; layer-- > 0;) {
    CKPT_TRY(moe_[layer].backward(comm, *store_, moe_parameters(layer), dprobability_, dx_));
    attention_[layer].backward(attention_parameters(layer), dx_);
  }
  device_.embedding_backward(config_.hidden, token_ids_, dx_, dense_[kEmbedding].sum());
  return {};
}

void MixtralModel::count_routing(uint32_t rank) {
  for (size_t layer = 0; layer < config_.layers; ++layer) {
    for (const int32_t expert : moe_[layer].choice()) {
      ++routing_counts_[layer * config_.experts + static_cast<size_t>(expert)];
    }
    const std::span<const int64_t> rows = moe_[layer].rank_rows();
    load_.rows += std::accumulate(rows.begin(), rows.end(), int64_t{0});
    load_.busiest_rows += *std::ranges::max_element(rows);
    own_rows_ += rows[rank];
  }
}

}  // namespace

Result<std::unique_ptr<Model>> Model::create(Device& device, const ModelConfig& config,
                                             std::unique_ptr<ExpertStore> store,
                                             const ExpertSchedule& schedule,
                                             std::shared_ptr<const RouterTrace> trace) {
  CKPT_TRY(validate(config));
  CKPT_ASSIGN(ForcedRouting forced, ForcedRouting::make(config, std::move(trace)));
  CKPT_TRY(device.check_gate(config.experts, config.top_k));
  CKPT_TRY(check_shape(config, *store));
  auto model =
      std::make_unique<MixtralModel>(device, config, std::move(store), schedule, std::move(forced));
  CKPT_TRY(device.synchronize());  // reports failed allocations
  return std::unique_ptr<Model>(std::move(model));
}

Result<std::vector<int64_t>> gather_routing_counts(Comm& comm, const Model& model) {
  const std::span<const int64_t> own = model.routing_counts();
  std::vector<int64_t> all(own.size() * comm.size());
  CKPT_TRY(comm.all_gather(own, all));
  return all;
}

}  // namespace moetrain
