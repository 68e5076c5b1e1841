#include "client/ctl/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "formats/base/console.h"
#include "formats/base/parse.h"

namespace ckptctl {

Progress::Progress(std::string what) : what_(std::move(what)), terminal_(::isatty(2) == 1) {}

void Progress::start(uint64_t bytes_total) {
  bytes_total_ = bytes_total;
  draw();
}

void Progress::add(uint64_t bytes) {
  bytes_ += bytes;
  draw();
}

void Progress::finish() {
  if (terminal_) ckpt::base::write_stderr_exactly("\n");
}

void Progress::draw() const {
  if (!terminal_) return;
  constexpr uint64_t kWidth = 40;
  const uint64_t filled =
      bytes_total_ > 0 ? std::min(kWidth, bytes_ * kWidth / bytes_total_) : kWidth;
  ckpt::base::write_stderr_exactly(
      fmt::format("\r{} [{:<40}] {} of {} ", what_, std::string(filled, '#'),
                  ckpt::base::format_size(bytes_), ckpt::base::format_size(bytes_total_)));
}

}  // namespace ckptctl
