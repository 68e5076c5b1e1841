#include "tests/trainer/device/train_checks.h"

#include <numeric>

#include "tests/trainer/device/check_parts.h"
#include "trainer/comm/comm_nccl.h"

namespace moetrain {

namespace {

using ckpt::kernels::Backend;

// A model small enough for the emulated device: an emulated thread costs as much as thousands of
// real ones.
Sizes tiny_sizes() {
  Sizes sizes;
  sizes.small.model = {.vocab = 128,
                       .hidden = 16,
                       .layers = 1,
                       .heads = 2,
                       .kv_heads = 1,
                       .head_dim = 8,
                       .intermediate = 24,
                       .experts = 4,
                       .top_k = 2,
                       .seq_len = 8,
                       .rope_theta = 1e4,
                       .init_range = 0.2};
  sizes.small.micro_batches = 1;
  sizes.small.batch = 3;
  sizes.small.schedule.learning_rate = 4e-3;
  sizes.small.schedule.warmup_steps = 2;
  sizes.deeper = sizes.small;
  sizes.deeper.model.layers = 2;
  sizes.deeper.model.heads = 4;
  sizes.deeper.model.kv_heads = 2;
  sizes.deeper.micro_batches = 2;
  sizes.ranks = 3;
  sizes.steps = 2;
  sizes.compared_steps = 4;
  sizes.followed = sizes.small;
  sizes.followed_steps = 12;
  sizes.sink = {.slab_bytes = 64 << 10,
                .gather_bytes = 64 << 10,
                .chunk_bytes = 16 << 10,
                .ahead_bytes = 16 << 10,
                .direct_bytes = 1 << 10};
  sizes.trained_tolerance = 1e-4;
  sizes.trained_loss_tolerance = 1e-5;
  return sizes;
}

Sizes real_sizes() {
  Sizes sizes;
  sizes.small.model = {.hidden = 128,
                       .layers = 4,
                       .heads = 8,
                       .kv_heads = 4,
                       .head_dim = 16,
                       .intermediate = 256,
                       .experts = 16,
                       .top_k = 2,
                       .seq_len = 128,
                       .rope_theta = 1e4};
  sizes.small.micro_batches = 1;
  sizes.small.batch = 16;
  sizes.small.schedule.total_steps = 200;
  sizes.deeper = sizes.small;
  sizes.deeper.micro_batches = 2;
  sizes.deeper.batch = 5;
  sizes.ranks = 4;
  sizes.steps = 10;
  sizes.compared_steps = 4;
  // A low learning rate: two trainings that differ by rounding diverge, and diverge faster with a
  // higher rate.
  sizes.followed = sizes.small;
  sizes.followed.batch = 32;
  sizes.followed.schedule.learning_rate = 2e-4;
  sizes.followed_steps = 200;
  sizes.sink = {.slab_bytes = 16 << 20,
                .gather_bytes = 8 << 20,
                .chunk_bytes = 1 << 20,
                .ahead_bytes = 2 << 20,
                .direct_bytes = 64 << 10};
  sizes.trained_tolerance = 1e-3;
  sizes.trained_loss_tolerance = 1e-4;
  return sizes;
}

Result<std::unique_ptr<Device>> on_host() { return make_cpu_device(); }

// The same training computed in two ways. Seeds are drawn until both choose the same experts: if
// two experts are almost equally probable, rounding decides, and the computations differ from then
// on. A device that computes wrongly does so with any seed. Without `same_experts`, the first seed
// counts.
struct BothWays {
  TrainedRank value;
  TrainedRank expected;
};
std::optional<BothWays> both_ways(Checker& c, Training way, Training expected_way,
                                  bool same_experts = true) {
  constexpr int kTries = 4;
  for (int i = 0; i < kTries; ++i) {
    way.config.seed = expected_way.config.seed = c.random();
    auto value = first_of(c, way);
    auto expected = first_of(c, expected_way);
    if (!value || !expected) return std::nullopt;
    const bool same = value->progress.routed_tokens == expected->progress.routed_tokens;
    if (same_experts && !same) continue;
    return BothWays{std::move(*value), std::move(*expected)};
  }
  c.expect(false, fmt::format("other experts are chosen, {} times", kTries));
  return std::nullopt;
}

void check_gradients(Checker& c, const Sizes& sizes) {
  Training host{.config = sizes.deeper, .text = check_text(), .make_device = on_host};
  Training gpu = host;
  gpu.make_device = on_gpu(Precision::kFp32);
  const auto both = both_ways(c, std::move(gpu), std::move(host));
  if (!both) return;
  expect_close(c, both->value.losses, both->expected.losses, sizes.tolerance);
  expect_close(c, both->value.gradients, both->expected.gradients, sizes.tolerance);
}

void expect_same_training(Checker& c, const Sizes& sizes, Training way, Training expected_way) {
  const auto both = both_ways(c, std::move(way), std::move(expected_way));
  if (!both) return;
  expect_close(c, both->value.losses, both->expected.losses, sizes.trained_loss_tolerance);
  expect_close(c, both->value.state, both->expected.state, sizes.trained_tolerance);
}

void check_steps(Checker& c, const Sizes& sizes) {
  Training host{.config = sizes.small, .text = check_text(), .steps = sizes.compared_steps};
  host.make_device = on_host;
  Training gpu = host;
  gpu.make_device = on_gpu(Precision::kFp32);
  expect_same_training(c, sizes, std::move(gpu), std::move(host));
}

void check_ranks(Checker& c, const Sizes& sizes) {
  Training one{.config = sizes.small, .text = check_text(), .steps = sizes.compared_steps};
  one.make_device = on_gpu(Precision::kFp32);
  Training several = one;
  several.ranks = sizes.ranks;
  expect_same_training(c, sizes, std::move(several), std::move(one));
}

// Every rank holds every expert, in slots of another order, one of them twice.
void check_replicas_in(Checker& c, const Sizes& sizes, Precision precision) {
  const TrainConfig config = with(sizes.small, precision);
  const ModelConfig& shape = config.model;
  LayerSlots slots(2);
  slots[0].resize(shape.experts);
  std::iota(slots[0].begin(), slots[0].end(), 0u);
  slots[1].assign(slots[0].rbegin(), slots[0].rend());
  slots[1].push_back(0);
  const auto placement =
      make_placement(std::vector<LayerSlots>(shape.layers, slots), shape.experts, 2);
  c.expect(placement.ok(), "no such placement");
  if (!placement.ok()) return;
  // Products of fewer rows round differently in bf16, which sometimes selects another expert. The
  // check therefore compares one step only, before such differences accumulate.
  const bool coarse = precision == Precision::kBf16;
  Training one{.config = config, .text = check_text(), .steps = coarse ? 1 : sizes.compared_steps};
  one.make_device = on_gpu(precision);
  Training replicated = one;
  replicated.ranks = 2;
  replicated.placement = &*placement;
  // With few tokens, a single moved token changes everything.
  const bool may_move = coarse && config.tokens_per_step() >= 1000;
  const auto both = both_ways(c, std::move(replicated), std::move(one), !may_move);
  if (!both) return;
  if (coarse) {
    expect_close(c, both->value.losses, both->expected.losses, 1e-2);
    return expect_close_but_for_moved(c, config.model, both->value, both->expected);
  }
  expect_close(c, both->value.losses, both->expected.losses, sizes.trained_loss_tolerance);
  expect_close(c, both->value.gradients, both->expected.gradients, 1e-3);
}

// Three ranks, one with a replica of each expert, which three parts of an expert are restored for.
void check_sharded_in(Checker& c, const Sizes& sizes, Precision precision) {
  const TrainConfig config = with(sizes.small, precision);
  const ModelConfig& shape = config.model;
  LayerSlots slots(3);
  for (uint32_t expert = 0; expert < shape.experts; ++expert) {
    slots[expert % 2].push_back(expert);
    slots[2].push_back(expert);
  }
  const auto placement =
      make_placement(std::vector<LayerSlots>(shape.layers, slots), shape.experts, 3);
  c.expect(placement.ok(), "no such placement");
  if (!placement.ok()) return;
  Training replicated{.config = config,
                      .text = check_text(),
                      .ranks = 3,
                      .steps = sizes.compared_steps,
                      .make_device = on_gpu(precision),
                      .placement = &*placement};
  Training sharded = replicated;
  sharded.experts = ExpertState::kSharded;
  // The same rows go to the same products: only the order of fp32 sums differs.
  const auto both = both_ways(c, std::move(sharded), std::move(replicated));
  if (!both) return;
  expect_close(c, both->value.losses, both->expected.losses, sizes.trained_loss_tolerance);
  expect_close(c, both->value.state, both->expected.state, sizes.trained_tolerance);
}

// Another thread moves the same numbers in the same order.
void check_sharded_beside(Checker& c, const Sizes& sizes, Precision precision) {
  Training training{.config = drawn(c, sizes.small, precision),
                    .text = check_text(),
                    .ranks = 3,
                    .steps = sizes.compared_steps,
                    .make_device = on_gpu(precision),
                    .experts = ExpertState::kSharded};
  auto at_once = first_of(c, training);
  training.threaded = true;
  const auto threaded = first_of(c, training);
  if (!at_once || !threaded) return;
  c.expect_equal(threaded->losses, at_once->losses, "losses");
  c.expect(merge(at_once->state, threaded->state) == 0, "other parameters or moments");
}

void check_repeats(Checker& c, const Sizes& sizes, Precision precision) {
  const Training training{.config = drawn(c, sizes.small, precision),
                          .text = check_text(),
                          .ranks = 2,
                          .steps = sizes.steps,
                          .make_device = on_gpu(precision)};
  const auto first = first_of(c, training);
  const auto second = first_of(c, training);
  if (!first || !second) return;
  c.expect_equal(second->losses, first->losses, "losses");
  c.expect(second->state == first->state, "other parameters or moments");
}

}  // namespace

std::vector<Check> train_checks(bool tiny) {
  const Sizes sizes = tiny ? tiny_sizes() : real_sizes();
  std::vector<Check> all;
  const auto add = [&](const char* name, void (*check)(Checker&, const Sizes&)) {
    all.push_back({name, Backend::kCuda, [=](Checker& c) { check(c, sizes); }});
  };
  add("gradients_are_those_of_the_host", check_gradients);
  add("steps_are_those_of_the_host", check_steps);
  add("ranks_on_one_gpu_compute_what_one_does", check_ranks);
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const std::string name = precision == Precision::kBf16 ? "_in_bf16" : "_in_fp32";
    all.push_back({"replicas_compute_what_one_of_each_does" + name, Backend::kCuda,
                   [=](Checker& c) { check_replicas_in(c, sizes, precision); }});
    all.push_back({"sharded_experts_compute_what_replicated_ones_do" + name, Backend::kCuda,
                   [=](Checker& c) { check_sharded_in(c, sizes, precision); }});
    all.push_back({"a_communication_thread_changes_no_bit" + name, Backend::kCuda,
                   [=](Checker& c) { check_sharded_beside(c, sizes, precision); }});
    all.push_back({"a_run_repeated_has_the_same_bits" + name, Backend::kCuda,
                   [=](Checker& c) { check_repeats(c, sizes, precision); }});
    all.push_back({"a_run_resumed_goes_on_bit_by_bit" + name, Backend::kCuda,
                   [=](Checker& c) { check_resume(c, sizes, precision); }});
  }
  for (const uint32_t to : {3, 1}) {
    all.push_back({"two_ranks_go_on_as_" + std::to_string(to), Backend::kCuda,
                   [=](Checker& c) { check_other_ranks(c, sizes, 2, to); }});
  }
  add("a_group_that_changes_goes_on", check_changing_group);
  add("memory_of_a_pool_is_saved_and_restored", check_pool_memory);
  add("a_captured_graph_stays_valid_beside_a_snapshot", check_beside_a_capture);
  add("bf16_follows_fp32", check_bf16);
  // NCCL allows one rank per GPU. A program that is built without NCCL has no such check.
  if (has_nccl()) {
    all.push_back({"nccl_group_of_one", Backend::kCuda, check_nccl_group_of_one, "nccl"});
  }
  return all;
}

}  // namespace moetrain
