#include "trainer/model/step_profile.h"

#include <algorithm>
#include <chrono>

namespace moetrain {

namespace {

int64_t profile_clock_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

StepProfile::Timer::Timer(StepProfile& profile, Activity activity, Lane lane, uint32_t layer)
    : profile_(profile), span_{activity, lane, layer, profile_clock_ns(), 0} {}

StepProfile::Timer::~Timer() {
  span_.end_ns = profile_clock_ns();
  profile_.add(span_);
}

void StepProfile::begin_step() {
  keeping_ = keep_spans_;
  sums_ns_ = {};
  spans_.clear();
  spans_left_out_ = 0;
}

void StepProfile::add(const ActivitySpan& span) {
  const std::lock_guard lock(adding_);
  sums_ns_[static_cast<size_t>(span.lane)][static_cast<size_t>(span.activity)] +=
      span.end_ns - span.begin_ns;
  if (!keeping_) return;
  if (spans_.size() < kSpansMax) {
    spans_.push_back(span);
  } else {
    ++spans_left_out_;
  }
}

void StepProfile::mark(Activity activity, uint32_t layer) {
  const int64_t now_ns = profile_clock_ns();
  add({activity, Lane::kCompute, layer, now_ns, now_ns});
}

int64_t StepProfile::sum(Lane lane, Activity activity) const {
  return sums_ns_[static_cast<size_t>(lane)][static_cast<size_t>(activity)];
}

CommunicationTime StepProfile::communication() const {
  // Jobs run while the rank's thread waits; the hidden time is the rest of the exchanges. An
  // exchange cannot separate the transfer of bytes from the wait for a late peer, so both count
  // alike.
  const int64_t waited_ns =
      sum(Lane::kCompute, Activity::kWaitRestore) + sum(Lane::kCompute, Activity::kWaitReshard);
  const int64_t beside_ns =
      sum(Lane::kCommunication, Activity::kRestore) + sum(Lane::kCommunication, Activity::kReshard);
  return {.exposed_ns = sum(Lane::kCompute, Activity::kTokens) +
                        sum(Lane::kCompute, Activity::kRestore) +
                        sum(Lane::kCompute, Activity::kReshard) + waited_ns,
          .hidden_ns = std::max<int64_t>(beside_ns - waited_ns, 0)};
}

}  // namespace moetrain
