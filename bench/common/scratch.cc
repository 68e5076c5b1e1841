#include "bench/common/scratch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "formats/base/unique_fd.h"
#include "trainer/elastic/stop_signals.h"

namespace bench {

namespace {

// Directories to remove on exit; shared with the thread that waits for signals.
struct Scratch {
  std::mutex mutex;
  std::set<std::string> directories;
};
Scratch& scratch() {
  static auto* const all = new Scratch;  // never freed: that thread may outlive static objects
  return *all;
}

// Number of discards of the device, by the kernel's count (Documentation/block/stat.rst). nullopt
// if the kernel does not report it.
std::optional<uint64_t> discards(dev_t device) {
  constexpr int kDiscardsField = 11;
  std::ifstream stat(fmt::format("/sys/dev/block/{}:{}/stat", major(device), minor(device)));
  uint64_t value = 0;
  for (int field = 0; field <= kDiscardsField; ++field) {
    if (!(stat >> value)) return std::nullopt;
  }
  return value;
}

void remove_directory(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

ckpt::Result<ScratchDirectory> ScratchDirectory::make(const std::string& below) {
  std::string pattern = below + "/ckptbench_XXXXXX";
  const std::lock_guard lock(scratch().mutex);
  if (::mkdtemp(pattern.data()) == nullptr) {
    return ckpt::make_error(ckpt::ErrorCode::kIo, "{}: no directory can be made here: {}", below,
                            std::strerror(errno));
  }
  scratch().directories.insert(pattern);
  return ScratchDirectory(std::move(pattern));
}

ScratchDirectory::~ScratchDirectory() {
  if (path_.empty()) return;
  remove_directory(path_);
  const std::lock_guard lock(scratch().mutex);
  scratch().directories.erase(path_);
}

void remove_scratch_when_stopped() {
  moetrain::hold_stop_signals();
  std::thread([] {
    pollfd stop{moetrain::stop_signals_fd(), POLLIN, 0};
    while (::poll(&stop, 1, -1) != 1) {
    }
    const int signal = moetrain::take_stop_signal().value_or(SIGTERM);
    // Never unlocked: no directory may be made from here on.
    scratch().mutex.lock();
    for (const std::string& path : scratch().directories) remove_directory(path);
    ::_exit(128 + signal);
  }).detach();
}

void settle(const std::string& directory) {
  const ckpt::base::UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return;
  ::syncfs(fd.get());
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return;
  // Discards are asynchronous: wait until their count has not changed for a while.
  constexpr int kPollsMax = 300;
  constexpr std::chrono::milliseconds kPollInterval{100};
  auto seen = discards(status.st_dev);
  for (int i = 0; seen.has_value() && i < kPollsMax; ++i) {
    std::this_thread::sleep_for(kPollInterval);
    const auto now = discards(status.st_dev);
    if (now == seen) return;
    seen = now;
  }
}

void fill_random(ckpt::MutableByteView bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    ckpt::base::store(bytes.data() + at, random());
  }
}

}  // namespace bench
