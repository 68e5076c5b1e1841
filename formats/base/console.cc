#include "formats/base/console.h"

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "formats/base/printable.h"

namespace ckpt::base {

namespace {
std::atomic<int> first_stdout_failure = 0;
}  // namespace

void write_stdout_exactly(std::string_view document) {
  errno = 0;
  if (std::fwrite(document.data(), 1, document.size(), stdout) == document.size()) return;
  int none = 0;
  first_stdout_failure.compare_exchange_strong(none, errno != 0 ? errno : EIO);
}

int flush_stdout() {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  int none = 0;
  if (!flushed || std::ferror(stdout) != 0) {
    first_stdout_failure.compare_exchange_strong(none, errno != 0 ? errno : EIO);
  }
  return first_stdout_failure;
}

void write_stderr_exactly(std::string_view text) {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

void write_stdout(std::string_view screen) { write_stdout_exactly(escaped_screen(screen)); }
void write_stderr(std::string_view lines) { write_stderr_exactly(escaped_lines(lines)); }

}  // namespace ckpt::base
