#include "trainer/report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "formats/base/printable.h"
#include "trainer/report/render.h"
#include "trainer/report/text.h"

namespace moetrain::report {
namespace {

constexpr int kBarCellsMax = 32;
constexpr int kBarCellsMin = 8;

// `share` (0..1) as `cells` characters; with Unicode the last one is filled by eighths.
std::string draw_bar(double share, int cells, bool unicode) {
  const int eighths = static_cast<int>(std::clamp(share, 0.0, 1.0) * cells * 8 + 1e-9);
  const int full = eighths / 8;
  std::string bar;
  if (!unicode) {
    bar.append(static_cast<size_t>(full), '#');
    bar.append(static_cast<size_t>(cells - full), '.');
    return bar;
  }
  for (int i = 0; i < full; ++i) bar += "\u2588";
  int drawn = full;
  if (eighths % 8 > 0) {
    // U+2588 is the full block; each code point after it is one eighth less.
    append_utf8(bar, 0x2588U + static_cast<uint32_t>(8 - eighths % 8));
    ++drawn;
  }
  bar.append(static_cast<size_t>(cells - drawn), ' ');
  return bar;
}

bool write_ignoring_errors(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

int terminal_columns(int fd, int fallback) {
  winsize size = {};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return fallback;
  return size.ws_col;
}

ProgressBar::Options ProgressBar::for_descriptor(int fd, std::string label, uint64_t total) {
  Options options;
  options.label = std::move(label);
  options.total = total;
  options.tty = ::isatty(fd) == 1;
  options.columns = terminal_columns(fd);
  options.unicode = locale_is_utf8();
  options.write = [fd](std::string_view bytes) { (void)write_ignoring_errors(fd, bytes); };
  return options;
}

ProgressBar::ProgressBar(Options options)
    : options_(std::move(options)), started_(options_.now()), last_drawn_(started_) {}

std::string ProgressBar::plain_line() const {
  std::string line = fmt::format("{}: step {}/{}", options_.label, done_, options_.total);
  if (!detail_.empty()) line += fmt::format(", {}", detail_);
  return line;
}

std::string ProgressBar::bar_line() const {
  const double share =
      options_.total == 0 ? 0 : static_cast<double>(done_) / static_cast<double>(options_.total);
  const auto elapsed = options_.now() - started_;
  const double elapsed_ms = std::chrono::duration<double, std::milli>(elapsed).count();
  std::string tail = fmt::format(" {}/{}", done_, options_.total);
  if (!detail_.empty()) tail += fmt::format("  {}", detail_);
  if (done_ > first_done_ && done_ < options_.total) {
    const double per_step_ms = elapsed_ms / static_cast<double>(done_ - first_done_);
    tail += "  " + human_ms(per_step_ms * static_cast<double>(options_.total - done_)) + " left";
  } else {
    tail += "  " + human_ms(elapsed_ms);
  }
  const int room = options_.columns - 1 - display_width(options_.label) - 3 - display_width(tail);
  if (room < kBarCellsMin) return clip(options_.label + tail, options_.columns - 1);
  const int cells = std::min(room, kBarCellsMax);
  const char* left = options_.unicode ? "\u2595" : "[";
  const char* right = options_.unicode ? "\u258f" : "]";
  return options_.label + " " + left + draw_bar(share, cells, options_.unicode) + right + tail;
}

void ProgressBar::update(uint64_t done, std::string_view detail) {
  const auto now = options_.now();
  if (!have_first_) {
    first_done_ = done;
    started_ = now;
  }
  done_ = done;
  detail_ = detail;
  const auto interval = options_.tty ? options_.redraw_interval : options_.line_interval;
  if (have_first_ && now - last_drawn_ < interval) return;
  have_first_ = true;
  last_drawn_ = now;
  if (options_.tty) {
    options_.write("\r" + bar_line() + "\x1b[K");
    drawn_ = true;
  } else {
    last_line_ = plain_line();
    options_.write(last_line_ + "\n");
  }
}

void ProgressBar::interrupt(std::string_view line) {
  std::string text = drawn_ ? "\r\x1b[K" : "";
  text += ckpt::base::escaped_lines(line);
  text += "\n";
  if (drawn_) text += bar_line();
  options_.write(text);
}

void ProgressBar::finish() {
  if (finished_ || !have_first_) return;
  finished_ = true;
  if (options_.tty) {
    options_.write("\r" + bar_line() + "\x1b[K\n");
    drawn_ = false;
  } else if (last_line_ != plain_line()) {
    options_.write(plain_line() + "\n");
  }
}

}  // namespace moetrain::report
