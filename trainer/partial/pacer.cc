#include "trainer/partial/pacer.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/base/assert.h"
#include "formats/base/counted.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Interval until the first choice: soon enough for measurements, but not at every step.
constexpr uint64_t kFirstEvery = 4;
// Minimum steps between choices: each uses the measurements since the previous one.
constexpr uint64_t kDecideEveryMin = 8;
// Steps until the ranks check again, since snapshots take some steps to become durable.
constexpr uint64_t kRecheckSteps = 2;
constexpr size_t kSamplesMax = 15;
// Fewer samples are no measurement.
constexpr size_t kSamplesMin = 3;
// More than the snapshots in flight at any time.
constexpr size_t kTakenMax = 16;
// Changes of less than 1/kNoisePart are measurement noise.
constexpr uint64_t kNoisePart = 4;
// Upper bound of halvings: no interval needs more.
constexpr uint32_t kHalvedMax = 20;
static_assert(AutoLimits{}.steps_max >> kHalvedMax == 0);

enum Measure : uint8_t { kStep, kStall, kDurable, kRestore, kFailures, kSeen, kMissing, kMeasures };

// Bound of times: longer than any run, and small enough to be summed.
constexpr int64_t kNsMax = INT64_MAX / 4;

bool differs(uint64_t is, uint64_t wanted) {
  return (is > wanted ? is - wanted : wanted - is) * kNoisePart > is;
}

}  // namespace

Status check_pace(const PaceState& state, uint32_t experts) {
  const auto sane_ns = [](int64_t ns) { return ns >= 0 && ns <= kNsMax; };
  const uint64_t steps_max = AutoLimits{}.steps_max;
  if (state.every <= steps_max && state.widest <= steps_max && state.every <= state.widest &&
      state.k <= experts && state.k_min <= experts && sane_ns(state.step_ns) &&
      sane_ns(state.stall_ns) && sane_ns(state.durable_ns) && sane_ns(state.restore_ns) &&
      sane_ns(state.seen_ns) && state.failures <= UINT32_MAX && state.halved <= kHalvedMax) {
    return {};
  }
  return make_error(
      ErrorCode::kInvalidArgument,
      "checkpoints every {} steps of {} experts, {} failures in {} ns, halved {} times",
      state.every, state.k, state.failures, state.seen_ns, state.halved);
}

void Pacer::Median::add(int64_t value) {
  newest_.push_back(std::clamp<int64_t>(value, 1, kNsMax));
  if (newest_.size() > kSamplesMax) newest_.pop_front();
}

bool Pacer::Median::enough() const { return newest_.size() >= kSamplesMin; }

int64_t Pacer::Median::value() const {
  if (newest_.empty()) return 0;
  std::vector<int64_t> sorted(newest_.begin(), newest_.end());
  const auto middle = sorted.begin() + static_cast<int64_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

Pacer::Pacer(const PaceOptions& options) : options_(options) {
  CKPT_ASSERT(options.experts > 0 && options.k <= options.experts);
  start();
}

void Pacer::start(bool again) {
  const uint64_t failures = again ? state_.failures + 1 : 0;
  const int64_t seen_ns = again ? state_.seen_ns : 0;
  state_ = {};
  state_.failures = failures;
  state_.seen_ns = seen_ns;
  steps_ = stalls_ = durables_ = {};
  restore_ns_ = 0;
  taken_.clear();
  reason_ = options_.any() ? "nothing is measured yet" : "from flags and their defaults";
  if (options_.auto_every) state_.every = state_.widest = kFirstEvery;
  first_.reset();
  k_snapshot_ = 0;
  sustainable_ = 1;
  if (options_.any()) state_.decide_at = kFirstEvery * (kSamplesMin + 1) + kRecheckSteps;
}

void Pacer::resume(const PaceState& saved, ResumeCause cause, const FailureRecord& known,
                   uint64_t step) {
  // The newest known failures, never those that the view rewinds to.
  const auto known_training_ns =
      static_cast<int64_t>(std::min(known.seconds * 1e9, static_cast<double>(kNsMax)));
  const uint64_t before = std::max({state_.failures, saved.failures, known.failures});
  const int64_t seen_ns = std::max({state_.seen_ns, saved.seen_ns, known_training_ns});
  const bool failed = cause == ResumeCause::kSurvived || cause == ResumeCause::kRestarted ||
                      (cause == ResumeCause::kResumed && !saved.ended);
  state_ = saved;
  state_.ended = false;
  state_.failures = before + (failed ? 1 : 0);
  state_.seen_ns = seen_ns;
  state_.taken = step;
  taken_.clear();
  if (options_.auto_every && state_.every == 0) state_.every = kFirstEvery;
  state_.widest = std::max(state_.widest, state_.every);
  // Adapts the state of a run with a wider bound.
  if (options_.auto_experts && state_.k != 0) state_.k = std::max(state_.k, options_.k_least);
  // Decide soon: the failure rate or the machine may have changed.
  if (options_.any()) state_.decide_at = step + (saved.every == 0 ? kFirstEvery : kDecideEveryMin);
  if (options_.any()) reason_ = "as before the resume";
}

std::vector<int64_t> Pacer::resume_counts() const {
  return {static_cast<int64_t>(state_.failures), state_.seen_ns};
}

void Pacer::agree(std::span<const int64_t> counts) {
  CKPT_ASSERT(counts.size() == 2);
  state_.failures = static_cast<uint64_t>(counts[0]);
  state_.seen_ns = counts[1];
  derive_choices();
}

// Not saved or handed over: all ranks derive the same values from the state.
void Pacer::derive_choices() {
  k_snapshot_ = 0;
  sustainable_ = 1;
  if (state_.step_ns == 0) return;
  const AutoChoice choice = choose(costs(), request(), options_.limits);
  k_snapshot_ = choice.k_snapshot;
  sustainable_ = choice.sustainable;
}

Status Pacer::take_over(const PaceState& handed, uint64_t step) {
  const Status sane = check_pace(handed, options_.experts);
  if (!sane.ok()) return make_error(ErrorCode::kCorrupt, "handover: {}", sane.error().message);
  state_ = handed;
  steps_ = stalls_ = durables_ = {};
  taken_.clear();
  first_.reset();  // the rank's part has changed: it may touch new parts of its arena
  if (options_.any()) {
    state_.decide_at = std::min(state_.decide_at, step + kDecideEveryMin);
    reason_ = "as before the members changed";
  }
  derive_choices();
  return {};
}

void Pacer::rolled_back(double ms) {
  ++state_.failures;
  recovered(ms);
}

void Pacer::raise_k(uint32_t k) {
  state_.k_min = std::max(state_.k_min, k);
  if (options_.auto_experts && state_.k != 0) state_.k = std::max(state_.k, state_.k_min);
  if (state_.step_ns != 0) sustainable_ = choose(costs(), request(), options_.limits).sustainable;
}

bool Pacer::overspent() {
  if (state_.halved == kHalvedMax) return false;
  const uint64_t before = every();
  ++state_.halved;
  if (every() < before) return true;
  --state_.halved;
  return false;
}

uint64_t Pacer::every() const {
  const uint64_t whole = options_.auto_every ? state_.every : options_.every;
  if (whole == 0 || state_.halved == 0) return whole;
  return std::max(whole >> state_.halved, std::min(whole, sustainable_));
}

bool Pacer::due(uint64_t step) const {
  const uint64_t steps = every();
  if (steps == 0 || step == 0) return false;
  if (options_.auto_every) return step >= state_.taken + steps;
  const bool paused = options_.turns != 0 && step / options_.turns % 2 == 0;
  return !paused && step % steps == 0;
}

void Pacer::taking(uint64_t step, uint64_t bytes, uint64_t written_bytes) {
  state_.taken = step;
  if (!first_) first_ = step;
  taken_[step] = {bytes, written_bytes};
  if (taken_.size() > kTakenMax) taken_.erase(taken_.begin());
}

// Time to durable scales with the written bytes: samples are scaled to a snapshot of all experts.
void Pacer::durable(uint64_t step, double ms) {
  const auto taken = taken_.find(step);
  if (taken == taken_.end() || taken->second.written_bytes == 0 || step == first_) return;
  const auto written = static_cast<double>(taken->second.written_bytes);
  durables_.add(static_cast<int64_t>(ms * 1e6 * static_cast<double>(full_bytes()) / written));
}

void Pacer::stepped(double ms, double stall_ms, bool snapshot) {
  steps_.add(static_cast<int64_t>(ms * 1e6));
  state_.seen_ns = std::min(kNsMax, state_.seen_ns + static_cast<int64_t>((ms + stall_ms) * 1e6));
  const auto taken = taken_.find(state_.taken);
  if (!snapshot || taken == taken_.end() || taken->second.bytes == 0) return;
  if (state_.taken == first_) return;
  const auto bytes = static_cast<double>(taken->second.bytes);
  stalls_.add(static_cast<int64_t>(stall_ms * 1e6 * static_cast<double>(full_bytes()) / bytes));
}

// A restarted process has no measurements yet: until it has, the last agreed values count.
std::vector<int64_t> Pacer::measured() const {
  const auto or_before = [](const Median& now, int64_t before) {
    return now.enough() || before == 0 ? now.value() : before;
  };
  std::vector<int64_t> all(kMeasures);
  all[kStep] = or_before(steps_, state_.step_ns);
  all[kStall] = or_before(stalls_, state_.stall_ns);
  all[kDurable] = or_before(durables_, state_.durable_ns);
  all[kRestore] = restore_ns_ != 0 ? restore_ns_ : state_.restore_ns;
  all[kFailures] = static_cast<int64_t>(state_.failures);
  all[kSeen] = state_.seen_ns;
  const bool before = state_.step_ns != 0;  // then all three were agreed before
  const bool enough = steps_.enough() && stalls_.enough() && durables_.enough();
  all[kMissing] = before || enough ? 0 : 1;
  return all;
}

MeasuredCosts Pacer::costs() const {
  const auto seconds = [](int64_t ns) { return static_cast<double>(ns) / 1e9; };
  const auto bytes = static_cast<double>(std::max<uint64_t>(full_bytes(), 1));
  MeasuredCosts costs;
  costs.step_s = seconds(state_.step_ns);
  costs.stall_s_per_byte = seconds(state_.stall_ns) / bytes;
  costs.durable_s_per_byte = seconds(state_.durable_ns) / bytes;
  costs.restore_s = seconds(state_.restore_ns);
  costs.dense_bytes = options_.dense_bytes;
  costs.expert_bytes = options_.expert_bytes;
  costs.experts = options_.experts;
  costs.failures = {state_.failures, seconds(state_.seen_ns)};
  return costs;
}

AutoRequest Pacer::request() const {
  AutoRequest request{.memory = options_.memory};
  if (options_.k_snapshot != 0) request.k_snapshot = options_.k_snapshot;
  if (!options_.auto_every) request.every = std::max<uint64_t>(options_.every, 1);
  // Dynamic K may exceed the requested K.
  if (!options_.auto_experts) {
    request.k = std::max(options_.k == 0 ? options_.experts : options_.k, state_.k_min);
  }
  request.k_min = std::max({1u, options_.k_least, state_.k_min});
  return request;
}

std::optional<std::string> Pacer::decide(uint64_t step, std::span<const int64_t> measured) {
  CKPT_ASSERT(measured.size() == kMeasures);
  state_.decide_at = step + kRecheckSteps;
  if (measured[kMissing] != 0) return std::nullopt;
  state_.step_ns = measured[kStep];
  state_.stall_ns = measured[kStall];
  state_.durable_ns = measured[kDurable];
  state_.restore_ns = measured[kRestore];
  state_.failures = static_cast<uint64_t>(measured[kFailures]);
  state_.seen_ns = measured[kSeen];
  AutoRequest request = this->request();
  AutoChoice choice = choose(costs(), request, options_.limits);
  state_.decide_at = step + std::max(choice.every, kDecideEveryMin);
  const bool first = state_.k == 0;
  const bool more_or_less = options_.auto_memory() && differs(k_snapshot_, choice.k_snapshot);
  const bool too_small = options_.auto_every && state_.every < choice.sustainable;
  if (!first && !too_small && !more_or_less && !differs(state_.every, choice.every) &&
      !differs(state_.k, choice.k_persist)) {
    // Keeps the choice, and explains it with the current numbers.
    request.every = state_.every;
    request.k = state_.k;
    if (options_.memory) request.k_snapshot = k_snapshot_;
    const AutoChoice same = choose(costs(), request, options_.limits);
    sustainable_ = same.sustainable;
    reason_ = explain(costs(), same);
    return std::nullopt;
  }
  state_.every = choice.every;
  state_.widest = std::max(state_.widest, choice.every);
  state_.k = choice.k_persist;
  k_snapshot_ = choice.k_snapshot;
  sustainable_ = choice.sustainable;
  reason_ = explain(costs(), choice);
  const std::string copied = options_.memory ? fmt::format(", {} copied", k_snapshot_) : "";
  return fmt::format("a checkpoint every {}, of {} of {}{}: {}",
                     ckpt::base::counted(state_.every, "step"), state_.k,
                     ckpt::base::counted(options_.experts, "expert"), copied, reason_);
}

std::optional<uint32_t> Pacer::k() const {
  if (!options_.auto_experts || state_.k == 0) return std::nullopt;
  return state_.k;
}

std::optional<uint32_t> Pacer::k_snapshot() const {
  if (!options_.auto_memory() || k_snapshot_ == 0) return std::nullopt;
  return k_snapshot_;
}

PaceState Pacer::state() const { return state_; }

}  // namespace moetrain
