#include "trainer/elastic/stall_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/base/parse.h"
#include "trainer/report/render.h"

namespace moetrain {

namespace {

// Three can be on their way to the disk; the fourth is the newest durable one.
constexpr size_t kCheckpointsKept = 4;

}  // namespace

void StallWatch::durable(const RankEvent& snapshot) {
  any_durable_ = true;
  Written& written = written_[snapshot.step];
  written.bytes += snapshot.bytes;
  written.durable_ms = std::max(written.durable_ms, snapshot.durable_ms);
  ++written.ranks;
  if (written_.size() > kCheckpointsKept) written_.erase(written_.begin());
}

void StallWatch::stepped(const RankEvent& step) {
  const double waited_ms = step.room_ms + step.slabs_ms;
  if (waited_ms < kTellMs) return;
  if (!stall_ || stall_->step != step.step) {
    ++stalls_;
    stall_ = Stall{.step = step.step, .seen_ns = step.time_ns};
  }
  if (waited_ms <= stall_->ms) return;
  stalled_ms_ += waited_ms - stall_->ms;
  stall_->ms = waited_ms;
  // Slabs are short because the disk has not written them yet, or because the arena is too small.
  stall_->disk = step.snapshots_open > 0;
  stall_->first = !any_durable_;
}

void StallWatch::goes_back() {
  written_.clear();
  stall_.reset();
}

// The newest checkpoint that all ranks have told of.
std::string StallWatch::speed() const {
  const Written* last = nullptr;
  for (const auto& [step, written] : written_) {
    if (last == nullptr || written.ranks >= last->ranks) last = &written;
  }
  if (last == nullptr || last->bytes == 0 || last->durable_ms <= 0) return "";
  const double per_second = static_cast<double>(last->bytes) / (last->durable_ms / 1e3);
  return fmt::format(" (the last one took {} for {}, {}/s)", report::human_ms(last->durable_ms),
                     ckpt::base::format_size(last->bytes),
                     ckpt::base::format_size(static_cast<uint64_t>(per_second)));
}

std::optional<std::string> StallWatch::line(uint64_t now_ns) {
  if (!stall_ || stall_->judged || now_ns < stall_->seen_ns + kGatherNs) return std::nullopt;
  stall_->judged = true;
  Reminder& told = stall_->disk ? disk_told_ : slabs_told_;
  if (!told.due(now_ns)) return std::nullopt;
  told.told(now_ns);
  return text(*stall_);
}

std::string StallWatch::text(const Stall& stall) const {
  std::string line =
      fmt::format("step {}: training stood still for {}, ", stall.step, report::human_ms(stall.ms));
  if (stall.disk) {
    line += fmt::format(
        "until earlier checkpoints were written: the disk is slow{}; checkpoint less often or "
        "fewer experts (--checkpoint-every auto, --experts-per-checkpoint auto), or leave "
        "checkpoints out instead (--out-of-slabs skip)",
        speed());
  } else if (stall.first) {
    line +=
        "as the arena's memory was not ready for the first checkpoint; later ones do not wait for "
        "that. ckptd --session-arena and --warm-pool keep memory ready for new sessions";
  } else {
    line +=
        "as no slab of the arena was free for its checkpoint; give ckptd a larger --arena, or "
        "save fewer experts (--experts-per-checkpoint)";
  }
  if (stalls_ > 1) {
    line +=
        fmt::format("; {} such stalls so far, {} in all", stalls_, report::human_ms(stalled_ms_));
  }
  return line;
}

}  // namespace moetrain
