#include "trainer/elastic/stall_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "formats/base/parse.h"
#include "trainer/report/render.h"

namespace moetrain {

namespace {

// Limit of checkpoints in flight to the disk.
constexpr size_t kOnTheWayMax = 3;
// Checkpoints in flight, and the newest durable one.
constexpr size_t kCheckpointsKept = kOnTheWayMax + 1;

}  // namespace

void StallWatch::durable(const EventHeader& at, const SnapshotEvent& snapshot) {
  any_durable_ = true;
  Written& written = written_[at.step];
  written.bytes += snapshot.bytes;
  written.durable_ms = std::max(written.durable_ms, snapshot.durable_ms);
  ++written.ranks;
  if (written_.size() > kCheckpointsKept) written_.erase(written_.begin());
}

StallWatch::Stall& StallWatch::at_step(uint64_t step, uint64_t now_ns) {
  if (!stall_ || stall_->step != step) {
    ++stalls_;
    stall_ = Stall{.step = step, .seen_ns = now_ns};
  }
  return *stall_;
}

void StallWatch::waited(Stall& stall, double ms, double waited_ms, uint32_t snapshots_open) {
  ms = std::max(ms, waited_ms);
  if (ms > stall.ms) {
    stalled_ms_ += ms - stall.ms;
    stall.ms = ms;
  }
  if (waited_ms <= stall.waited_ms) return;
  stall.waited_ms = waited_ms;
  // Slabs are short because the disk has not written them yet, or because the arena is too small.
  stall.disk = snapshots_open > 0;
  stall.first = !any_durable_;
}

void StallWatch::stalling(const EventHeader& at, const StallingEvent& stalling) {
  const uint64_t step = at.step + 1;  // reported with the step that follows the checkpoint
  const bool known = stall_ && stall_->step == step;
  Stall& stall = at_step(step, at.time_ns);
  if (!known) stall.lasts = true;
  waited(stall, stalling.waited_ms, stalling.waited_ms, stalling.snapshots_open);
}

void StallWatch::stepped(const EventHeader& at, const StepEvent& step) {
  const double waited_ms = step.room_ms + step.slabs_ms;
  // The wait is over, even if this rank did not stall.
  if (stall_ && stall_->lasts && at.step >= stall_->step) {
    stall_->lasts = false;
    stall_->seen_ns = at.time_ns;
    if (waited_ms < kReportMs && !stall_->reported) stall_->judged = true;
  }
  if (waited_ms < kReportMs) return;
  waited(at_step(at.step, at.time_ns), step.stall_ms, waited_ms, step.snapshots_open);
}

void StallWatch::rewound() {
  written_.clear();
  stall_.reset();
}

const StallWatch::Written* StallWatch::last_written() const {
  const Written* last = nullptr;
  for (const auto& [step, written] : written_) {
    if (last == nullptr || written.ranks >= last->ranks) last = &written;
  }
  return last == nullptr || last->bytes == 0 || last->durable_ms <= 0 ? nullptr : last;
}

bool StallWatch::due(const Stall& stall, uint64_t now_ns) {
  Reminder& reminder = stall.disk ? disk_reminder_ : slabs_reminder_;
  if (!reminder.due(now_ns)) return false;
  reminder.reported(now_ns);
  return true;
}

std::optional<std::string> StallWatch::line(uint64_t now_ns) {
  if (!stall_ || stall_->judged) return std::nullopt;
  Stall& stall = *stall_;
  if (stall.lasts) {
    if (stall.reported || !due(stall, now_ns)) return std::nullopt;
    stall.reported = true;
    return text(stall, now_ns);
  }
  if (now_ns < stall.seen_ns + kGatherNs) return std::nullopt;
  stall.judged = true;
  if (!stall.reported && !due(stall, now_ns)) return std::nullopt;
  return text(stall, now_ns);
}

std::string StallWatch::disk_cause(const Stall& stall) const {
  const char* be = stall.lasts ? "are" : "were";
  const Written* last = last_written();
  std::string speed;
  if (last != nullptr) {
    const double per_second = static_cast<double>(last->bytes) / (last->durable_ms / 1e3);
    speed = fmt::format(" (the last one took {} for {}, {}/s)", report::human_ms(last->durable_ms),
                        ckpt::base::format_size(last->bytes),
                        ckpt::base::format_size(static_cast<uint64_t>(per_second)));
    // At that rate, all earlier checkpoints in flight would have been written meanwhile.
    if (last->durable_ms * kOnTheWayMax < stall.waited_ms) {
      return fmt::format(
          "until earlier checkpoints {} written, longer than the rate of the last one explains{}: "
          "ckptd or its disk {} held up (see ckptd's log), or these checkpoints are larger",
          be, speed, stall.lasts ? "is" : "was");
    }
  }
  return fmt::format(
      "until earlier checkpoints {} written: the disk is slow{}; checkpoint less often or "
      "fewer experts (--checkpoint-every auto, --experts-per-checkpoint auto), or leave "
      "checkpoints out instead (--out-of-slabs skip)",
      be, speed);
}

std::string StallWatch::cause(const Stall& stall) const {
  if (stall.disk) return disk_cause(stall);
  if (stall.first) {
    return fmt::format(
        "as the arena's memory {} not ready for the first checkpoint; later ones do not wait for "
        "that. ckptd --session-arena and --warm-pool keep memory ready for new sessions",
        stall.lasts ? "is" : "was");
  }
  // ckptd does not report which of the two it is.
  return fmt::format(
      "as no slab of the arena {} ready for its checkpoint: ckptd prepares memory in the first "
      "seconds of a session, or the arena is too small; if this comes again, give ckptd a larger "
      "--arena, or save fewer experts (--experts-per-checkpoint)",
      stall.lasts ? "is" : "was");
}

std::string StallWatch::text(const Stall& stall, uint64_t now_ns) const {
  const double since_seen_ms = stall.lasts ? ms_between(stall.seen_ns, now_ns) : 0;
  const std::string time = report::human_ms(stall.ms + since_seen_ms);
  if (stall.lasts) {
    return fmt::format("step {}: training stands still, for {} so far, {}", stall.step, time,
                       cause(stall));
  }
  std::string line =
      stall.reported
          ? fmt::format("step {}: training continues after {}", stall.step, time)
          : fmt::format("step {}: training stood still for {}, {}", stall.step, time, cause(stall));
  if (stalls_ > 1) {
    line +=
        fmt::format("; {} such stalls so far, {} in all", stalls_, report::human_ms(stalled_ms_));
  }
  return line;
}

}  // namespace moetrain
