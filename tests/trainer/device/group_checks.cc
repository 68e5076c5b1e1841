// Membership changes with state on a GPU: no rank restarts, no rank rolls back.
#include <algorithm>
#include <array>
#include <thread>

#include "tests/trainer/device/check_parts.h"
#include "tests/trainer/elastic/live_rank.h"

namespace moetrain {

namespace {

using Comms = std::vector<std::unique_ptr<Comm>>;

constexpr uint32_t kGroupRanks = 4;
constexpr uint32_t kDies = 1;             // a rank of the first group
constexpr uint32_t kJoins = kGroupRanks;  // the fifth rank
constexpr uint64_t kSteps = 4;            // number of applied steps

// Communicators of the three epochs, in order.
struct Groups {
  Comms first = make_local_comms(kGroupRanks, kTimeoutMs);
  Comms survivors = make_local_comms(kGroupRanks - 1, kTimeoutMs);
  Comms last = make_local_comms(kGroupRanks, kTimeoutMs);

  // Ends the waits for a rank that has failed.
  void abort(const std::string& reason) const {
    for (const Comms* comms : {&first, &survivors, &last}) {
      for (const auto& comm : *comms) comm->abort(reason);
    }
  }
};

// Result of a rank.
struct Changed {
  std::vector<float> losses;
  Progress progress;
  int64_t lost_tokens = 0;
  uint64_t bytes_moved = 0;
};

// A rank is lost after two steps; the others may not all have applied the second by then.
Status train_in_first_group(Rank& rank, Comm& comm, uint32_t number) {
  constexpr uint64_t kStepsTogether = 2;
  rank.model->initialise(rank.config.seed);
  rank.live.is_whole();
  if (number == kDies) {
    for (uint64_t i = 0; i < kStepsTogether; ++i) CKPT_TRY(rank.step(comm));
    comm.abort("it is gone");
    return {};
  }
  while (rank.step(comm).ok()) {
  }
  if (rank.progress.step <= kStepsTogether) return {};
  return ckpt::make_error(ckpt::ErrorCode::kFailedPrecondition, "a step was done without a rank");
}

Status continue_in(Rank& rank, Comm& comm, uint64_t until) {
  CKPT_TRY(rank.change(comm));
  if (const auto& late = rank.live.late_step()) rank.losses.push_back(late->loss);
  while (rank.progress.step < until) CKPT_TRY(rank.step(comm));
  return {};
}

Status on_rank(const Groups& groups, uint32_t number, const TrainConfig& config, Changed& changed) {
  CKPT_ASSIGN(auto device, on_gpu(Precision::kFp32)());
  // Enough slots that one rank fewer still holds every expert twice.
  const PlacementOptions choice{.policy = PolicyName::kLazarus,
                                .slots = 3 * config.model.experts / kGroupRanks,
                                .replicas_min = 2};
  const uint32_t after_the_loss = number - (number > kDies ? 1 : 0);
  const uint32_t first = number == kJoins ? after_the_loss : number;
  Rank rank(std::move(device), config, check_text(), kGroupRanks, first, choice);
  if (number != kJoins) {
    CKPT_TRY(train_in_first_group(rank, *groups.first[number], number));
    if (number == kDies) return {};
    CKPT_TRY(continue_in(rank, *groups.survivors[after_the_loss], kSteps - 1));
    changed.bytes_moved = rank.bytes_moved;
  }
  CKPT_TRY(continue_in(rank, *groups.last[after_the_loss], kSteps));
  CKPT_TRY(rank.device->synchronize());
  changed.losses = rank.losses;
  changed.progress = rank.progress;
  changed.lost_tokens = rank.lost_tokens;
  changed.bytes_moved += rank.bytes_moved;
  return {};
}

Result<std::array<Changed, kGroupRanks + 1>> change_group(const TrainConfig& config) {
  const Groups groups;
  std::array<Changed, kGroupRanks + 1> changed;
  std::array<Status, kGroupRanks + 1> results;
  {
    std::vector<std::jthread> threads;
    for (uint32_t number = 0; number <= kJoins; ++number) {
      threads.emplace_back([&, number] {
        results[number] = on_rank(groups, number, config, changed[number]);
        if (!results[number].ok()) groups.abort(results[number].error().message);
      });
    }
  }
  // Report a rank's own error before the errors that it caused on other ranks.
  for (const bool echo : {false, true}) {
    for (const Status& result : results) {
      if (result.ok()) continue;
      const bool is_echo = result.error().code == ckpt::ErrorCode::kAborted;
      if (is_echo == echo) return result.error();
    }
  }
  return changed;
}

}  // namespace

// Draws seeds until both runs choose the same experts, as in all comparisons of two computations.
void check_changing_group(Checker& c, const Sizes& sizes) {
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    TrainConfig config = drawn(c, sizes.small, Precision::kFp32);
    config.batch = std::max(config.batch, kGroupRanks);
    const auto undisturbed = train({.config = config,
                                    .text = check_text(),
                                    .ranks = 1,
                                    .steps = kSteps,
                                    .make_device = on_gpu(Precision::kFp32)});
    const auto changed = change_group(config);
    if (!undisturbed.ok()) return c.expect(false, undisturbed.error().message);
    if (!changed.ok()) return c.expect(false, changed.error().message);
    const TrainedRank& expected = undisturbed->front();
    const Changed& stayed = changed->front();
    if (stayed.progress.routed_tokens != expected.progress.routed_tokens) continue;
    expect_close(c, stayed.losses, expected.losses, sizes.trained_loss_tolerance);
    for (uint32_t number : {0u, 2u, 3u, kJoins}) {
      const Changed& rank = (*changed)[number];
      c.expect(rank.progress == expected.progress, "another progress");
      c.expect(rank.lost_tokens == 0, "an expert was lost, though it had two holders");
      c.expect(rank.bytes_moved > 0, "nothing was moved");
      c.expect(!rank.losses.empty() && rank.losses.back() == stayed.losses.back(),
               "ranks have other losses");
    }
    return;
  }
  c.expect(false, fmt::format("other experts are chosen, {} times", kTries));
}

}  // namespace moetrain
