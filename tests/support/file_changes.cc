#include "tests/support/file_changes.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace ckpt::test {

FileChanges::FileChanges(const std::vector<std::filesystem::path>& folders)
    : events_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  EXPECT_TRUE(events_.valid()) << "inotify: " << std::strerror(errno);
  for (const std::filesystem::path& folder : folders) {
    const int watch = ::inotify_add_watch(events_.get(), folder.c_str(),
                                          IN_CREATE | IN_MODIFY | IN_MOVED_TO | IN_CLOSE_WRITE);
    EXPECT_GE(watch, 0) << folder << ": " << std::strerror(errno);
  }
}

void FileChanges::wait(int other, std::chrono::milliseconds at_most) {
  std::array<pollfd, 2> waiting = {{{events_.get(), POLLIN, 0}, {other, POLLIN, 0}}};
  (void)::poll(waiting.data(), waiting.size(), static_cast<int>(at_most.count()));
  std::array<char, 4096> discarded;
  while (::read(events_.get(), discarded.data(), discarded.size()) > 0) {
  }
}

}  // namespace ckpt::test
