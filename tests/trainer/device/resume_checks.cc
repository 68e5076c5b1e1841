// Training that resumes from a snapshot taken while training continued.
#include "tests/trainer/device/check_parts.h"

namespace moetrain {

namespace {

// Takes a snapshot of all state at each step boundary during training. Then another model restores
// the last snapshot and continues.
Status resume_on_rank(Comm& comm, Device& device, const Sizes& sizes, const TrainConfig& config,
                      std::vector<std::string>& findings) {
  CKPT_ASSIGN(const auto whole, RankTraining::make(device, comm, config, check_text()));
  CKPT_ASSIGN(const auto sink, StateSink::open(whole->model(), sizes.sink));
  const auto before_write = [&](const WeightState& state) { sink->before_write(state); };
  Progress saved;
  for (uint64_t step = 0; step <= sizes.steps; ++step) {
    saved = whole->progress();
    CKPT_TRY(sink->stage());
    CKPT_TRY(whole->steps(1, before_write));
  }
  CKPT_TRY(sink->drain());
  CKPT_TRY(whole->steps(sizes.steps - 1));

  CKPT_ASSIGN(const auto resumed, RankTraining::make(device, comm, config, check_text()));
  resumed->model().initialise(config.seed + 1);
  CKPT_TRY(sink->restore(resumed->model()));
  resumed->progress() = saved;
  CKPT_TRY(resumed->steps(sizes.steps));

  const std::vector<float> tail(whole->losses().end() - static_cast<int64_t>(sizes.steps),
                                whole->losses().end());
  const auto expect = [&](bool holds, const char* what) {
    if (!holds) findings.push_back(fmt::format("rank {}: {}", comm.rank(), what));
  };
  CKPT_ASSIGN(const State state, whole->state());
  CKPT_ASSIGN(const State resumed_state, resumed->state());
  expect(resumed->losses() == tail, "other losses");
  expect(resumed_state == state, "other parameters or moments");
  expect(resumed->progress() == whole->progress(), "another progress");
  return {};
}

// Few, because each step may choose other experts; the second step's loss depends on the moments.
constexpr uint64_t kStepsBeyond = 2;

// A snapshot that ranks hand over to other ranks; results of undisturbed and of resumed training.
struct LeftState {
  std::vector<StateSink*> sinks;  // of the ranks that hand it over
  Progress saved;
  std::vector<TrainedRank> undisturbed;
  std::vector<TrainedRank> resumed;
};

Status keep_trained(RankTraining& training, uint64_t steps, TrainedRank& kept) {
  kept.losses.assign(training.losses().end() - static_cast<int64_t>(steps),
                     training.losses().end());
  kept.progress = training.progress();
  CKPT_ASSIGN(kept.state, training.state());
  return {};
}

Status continue_from(LeftState& left, Comm& comm, Device& device, const TrainConfig& config) {
  CKPT_ASSIGN(const auto resumed, RankTraining::make(device, comm, config, check_text()));
  resumed->model().initialise(config.seed + 1);
  if (comm.size() == 1) {
    // A single rank needs the experts of all sinks.
    const Status part = StateSink::restore_from({left.sinks.front()}, resumed->model());
    if (part.ok() || part.error().code != ckpt::ErrorCode::kNotFound) {
      return ckpt::make_error(ckpt::ErrorCode::kFailedPrecondition,
                              "the state of one rank was taken for that of all");
    }
  }
  CKPT_TRY(StateSink::restore_from(left.sinks, resumed->model()));
  resumed->progress() = left.saved;
  CKPT_TRY(resumed->steps(kStepsBeyond));
  return keep_trained(*resumed, kStepsBeyond, left.resumed[comm.rank()]);
}

// Takes the snapshot while the next step computes. The snapshot and its device are kept until the
// other ranks have finished.
Status hand_over_to(LeftState& left, Comm& comm, Device& device, const Sizes& sizes,
                    const TrainConfig& config) {
  CKPT_ASSIGN(const auto whole, RankTraining::make(device, comm, config, check_text()));
  CKPT_ASSIGN(const auto sink, StateSink::open(whole->model(), sizes.sink));
  CKPT_TRY(whole->steps(sizes.steps));
  if (comm.rank() == 0) left.saved = whole->progress();
  CKPT_TRY(sink->stage());
  CKPT_TRY(
      whole->steps(kStepsBeyond, [&](const WeightState& state) { sink->before_write(state); }));
  CKPT_TRY(sink->drain());
  CKPT_TRY(keep_trained(*whole, kStepsBeyond, left.undisturbed[comm.rank()]));
  left.sinks[comm.rank()] = sink.get();
  CKPT_TRY(comm.barrier());
  if (comm.rank() == 0) {
    const auto ranks = static_cast<uint32_t>(left.resumed.size());
    CKPT_TRY(on_ranks(ranks, on_gpu(Precision::kFp32), [&](Comm& others, Device& other) {
      return continue_from(left, others, other, config);
    }));
  }
  return comm.barrier();
}

State state_of_all(const std::vector<TrainedRank>& ranks) {
  State state;
  for (const TrainedRank& rank : ranks) state.insert(rank.state.begin(), rank.state.end());
  return state;
}

}  // namespace

// Another number of ranks sums other rows, so losses are close to the undisturbed ones, not equal.
// Seeds are drawn until both runs choose the same experts, as in all comparisons.
void check_other_ranks(Checker& c, const Sizes& sizes, uint32_t from, uint32_t to) {
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    const TrainConfig config = drawn(c, sizes.small, Precision::kFp32);
    LeftState left;
    left.sinks.resize(from);
    left.undisturbed.resize(from);
    left.resumed.resize(to);
    const Status done = on_ranks(from, on_gpu(Precision::kFp32), [&](Comm& comm, Device& device) {
      return hand_over_to(left, comm, device, sizes, config);
    });
    if (!done.ok()) return c.expect(false, done.error().message);
    const TrainedRank& expected = left.undisturbed.front();
    if (left.resumed.front().progress.routed_tokens != expected.progress.routed_tokens) continue;
    for (const TrainedRank& rank : left.resumed) {
      expect_close(c, rank.losses, expected.losses, sizes.trained_loss_tolerance);
      c.expect(rank.progress == expected.progress, "another progress");
    }
    return expect_close(c, state_of_all(left.resumed), state_of_all(left.undisturbed),
                        sizes.trained_tolerance);
  }
  c.expect(false, fmt::format("other experts are chosen, {} times", kTries));
}

void check_resume(Checker& c, const Sizes& sizes, Precision precision) {
  constexpr uint32_t kRanks = 2;
  const TrainConfig config = drawn(c, sizes.small, precision);
  std::vector<std::vector<std::string>> findings(kRanks);
  const Status done = on_ranks(kRanks, on_gpu(precision), [&](Comm& comm, Device& device) {
    return resume_on_rank(comm, device, sizes, config, findings[comm.rank()]);
  });
  c.expect(done.ok(), done.ok() ? "" : done.error().message);
  for (const auto& of_rank : findings) {
    for (const std::string& finding : of_rank) c.expect(false, finding);
  }
}

}  // namespace moetrain
