#include "bench/scratch.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "formats/base/unique_fd.h"
#include "trainer/elastic/stop_signals.h"

namespace bench {

namespace {

// What is there to be removed; for the thread that waits for signals.
struct Scratch {
  std::mutex mutex;
  std::set<std::string> directories;
};
Scratch& scratch() {
  static auto* const all = new Scratch;  // lives as long as that thread may
  return *all;
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
    return ckpt::make_error(ckpt::ErrorCode::kIo, "{}: no directory can be made here", below);
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
    // Kept: nothing may be made any more.
    scratch().mutex.lock();
    for (const std::string& path : scratch().directories) remove_directory(path);
    ::_exit(128 + signal);
  }).detach();
}

void settle(const std::string& directory) {
  const ckpt::base::UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid()) ::syncfs(fd.get());
}

void fill_random(ckpt::MutableByteView bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    ckpt::base::store(bytes.data() + at, random());
  }
}

}  // namespace bench
