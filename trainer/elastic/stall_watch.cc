#include "trainer/elastic/stall_watch.h"

#include <fmt/format.h>

#include "formats/base/parse.h"
#include "trainer/report/render.h"

namespace moetrain {

void StallWatch::durable(uint64_t bytes, double durable_ms) {
  bytes_ = bytes;
  durable_ms_ = durable_ms;
}

std::string StallWatch::speed() const {
  if (bytes_ == 0 || durable_ms_ <= 0) return "";
  const double per_second = static_cast<double>(bytes_) / (durable_ms_ / 1e3);
  return fmt::format(" (the last one took {} for {} of each rank, {}/s)",
                     report::human_ms(durable_ms_), ckpt::base::format_size(bytes_),
                     ckpt::base::format_size(static_cast<uint64_t>(per_second)));
}

std::optional<std::string> StallWatch::stepped(const RankEvent& step) {
  const double waited_ms = step.room_ms + step.slabs_ms;
  if (waited_ms < kTellMs) return std::nullopt;
  ++stalls_;
  stalled_ms_ += waited_ms;
  // Slabs are short because the disk has not written them yet, or because the arena is too small.
  const bool disk = step.snapshots_open > 0;
  Reminder& told = disk ? disk_told_ : slabs_told_;
  if (!told.due(step.time_ns)) return std::nullopt;
  told.told(step.time_ns);
  std::string line =
      fmt::format("step {}: training stood still for {}, ", step.step, report::human_ms(waited_ms));
  if (disk) {
    line += fmt::format(
        "until earlier checkpoints were written: the disk is slow{}; checkpoint less often or "
        "fewer experts (--checkpoint-every auto, --experts-per-checkpoint auto), or leave "
        "checkpoints out instead (--out-of-slabs skip)",
        speed());
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
