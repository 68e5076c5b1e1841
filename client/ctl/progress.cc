#include "client/ctl/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "formats/base/console.h"
#include "formats/base/parse.h"

namespace ckptctl {

Progress::Progress(std::string label)
    : Progress(std::move(label),
               Output{.terminal = ::isatty(2) == 1, .write = [](const std::string& text) {
                        ckpt::base::write_stderr_exactly(text);
                      }}) {}

Progress::Progress(std::string label, Output output)
    : label_(std::move(label)),
      output_(std::move(output)),
      next_line_(output_.now() + kFirstLineAfter) {}

void Progress::start(uint64_t bytes_total) {
  bytes_total_ = bytes_total;
  draw();
}

void Progress::add(uint64_t bytes) {
  bytes_ += bytes;
  draw();
}

void Progress::finish() {
  if (output_.terminal) output_.write("\n");
}

void Progress::draw() {
  if (output_.terminal) return draw_bar();
  const Clock::time_point now = output_.now();
  if (now < next_line_) return;
  next_line_ = now + kLineEvery;
  output_.write(fmt::format("ckptctl: {}: {} of {}\n", label_, ckpt::base::format_size(bytes_),
                            ckpt::base::format_size(bytes_total_)));
}

void Progress::draw_bar() const {
  constexpr uint64_t kWidth = 40;
  const uint64_t filled =
      bytes_total_ > 0 ? std::min(kWidth, bytes_ * kWidth / bytes_total_) : kWidth;
  output_.write(fmt::format("\r{} [{:<40}] {} of {} ", label_, std::string(filled, '#'),
                            ckpt::base::format_size(bytes_),
                            ckpt::base::format_size(bytes_total_)));
}

}  // namespace ckptctl
