// StepProfile: the time that a rank's two threads spend in the MoE layers of a step, by activity.
//
// Sums are always kept. Spans, one for each activity of each layer, are kept on request: a trace of
// the schedule shows them (elastic/schedule_trace.h).
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

namespace moetrain {

enum class Activity : uint8_t {
  kTokens,   // all-to-all of rows, to the experts or back
  kRestore,  // weights of a layer's experts come from their owners
  kReshard,  // gradients of a layer's experts go to their owners
  // Arithmetic of the experts.
  kExpertsForward,
  kExpertsBackward,
  // Moments: an exchange is queued on the communication thread.
  kSubmitRestore,
  kSubmitReshard,
  // The rank's thread waits for the communication thread.
  kWaitRestore,
  kWaitReshard,
};
inline constexpr size_t kActivities = 9;

enum class Lane : uint8_t { kCompute, kCommunication };  // the rank's thread, the one beside it

struct ActivitySpan {
  Activity activity = Activity::kTokens;
  Lane lane = Lane::kCompute;
  uint32_t layer = 0;
  int64_t begin_ns = 0;  // CLOCK_MONOTONIC
  int64_t end_ns = 0;
};

// Token all-to-all, restore and re-shard of MoE layers, with packing and waits for late peers.
struct CommunicationTime {
  int64_t exposed_ns = 0;  // the rank's thread exchanged, or waited for an exchange
  int64_t hidden_ns = 0;   // an exchange ran while the rank's thread did something else
};

// Belongs to one rank. Both of its threads may call add(); the rank's own calls the rest, while
// nothing runs beside it.
class StepProfile {
 public:
  // Spans of one step; later ones are left out.
  static constexpr size_t kSpansMax = 16'384;

  // Adds an activity that lasts as long as this object.
  class Timer {
   public:
    Timer(StepProfile& profile, Activity activity, Lane lane, uint32_t layer);
    ~Timer();
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    StepProfile& profile_;
    ActivitySpan span_;
  };

  // From the next begin_step() on.
  void keep_spans(bool keep) { keep_spans_ = keep; }

  void begin_step();
  void add(const ActivitySpan& span);
  // An activity that takes no time.
  void mark(Activity activity, uint32_t layer);

  // Since begin_step().
  CommunicationTime communication() const;
  // In each lane ascending by end.
  const std::vector<ActivitySpan>& spans() const { return spans_; }
  uint64_t spans_left_out() const { return spans_left_out_; }

 private:
  int64_t sum(Lane lane, Activity activity) const;

  std::mutex adding_;
  bool keep_spans_ = false;
  bool keeping_ = false;                                       // in this step
  std::array<std::array<int64_t, kActivities>, 2> sums_ns_{};  // [lane][activity]
  std::vector<ActivitySpan> spans_;
  uint64_t spans_left_out_ = 0;
};

}  // namespace moetrain
