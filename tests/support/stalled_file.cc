#include "tests/support/stalled_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "formats/base/bytes.h"

namespace ckpt::test {
namespace {

constexpr uint64_t kFileNode = 2;
constexpr size_t kRequestBytesMax = 64 << 10;

fuse_attr attributes(uint64_t node) {
  fuse_attr attr{};
  attr.ino = node;
  attr.mode = node == kFileNode ? S_IFREG | 0666 : S_IFDIR | 0777;
  attr.nlink = 1;
  return attr;
}

}  // namespace

std::unique_ptr<StalledFile> StalledFile::mount() {
  base::UniqueFd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!device.valid()) return nullptr;
  std::unique_ptr<StalledFile> file(new StalledFile(std::move(device)));
  const std::string options = "fd=" + std::to_string(file->device_.get()) +
                              ",rootmode=40000,user_id=0,group_id=0,allow_other";
  if (::mount("stalled", file->folder_.path().c_str(), "fuse", MS_NOSUID | MS_NODEV,
              options.c_str()) != 0) {
    return nullptr;
  }
  file->stop_.reset(::eventfd(0, EFD_CLOEXEC));
  file->thread_ = std::thread([served = file.get()] { served->serve(); });
  return file;
}

StalledFile::~StalledFile() {
  if (!thread_.joinable()) return;
  ::umount2(folder_.path().c_str(), MNT_DETACH);
  const uint64_t one = 1;
  EXPECT_EQ(::write(stop_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  thread_.join();
  device_.reset();  // the kernel fails all requests that are still open
}

base::UniqueFd StalledFile::open() {
  own_thread_ = ::gettid();
  return base::UniqueFd(::open(folder_.path("file").c_str(), O_RDWR | O_CLOEXEC));
}

bool StalledFile::wait_until_stalled() const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < end) {
    {
      const std::lock_guard lock(mutex_);
      if (!stalled_.empty()) return true;
    }
    std::this_thread::yield();
  }
  return false;
}

void StalledFile::unblock() {
  const std::lock_guard lock(mutex_);
  stalls_ = false;
  for (const uint64_t unique : stalled_) answer(unique, 0, nullptr, 0);
  stalled_.clear();
}

void StalledFile::flush(uint64_t unique, pid_t thread) {
  const std::lock_guard lock(mutex_);
  if (stalls_ && thread != own_thread_) {
    stalled_.push_back(unique);
  } else {
    answer(unique, 0, nullptr, 0);
  }
}

void StalledFile::answer(uint64_t unique, int error, const void* bytes, size_t length) const {
  fuse_out_header header{};
  header.unique = unique;
  header.error = -error;
  header.len = static_cast<uint32_t>(sizeof header + length);
  std::array<iovec, 2> pieces{{{&header, sizeof header}, {const_cast<void*>(bytes), length}}};
  (void)::writev(device_.get(), pieces.data(), length > 0 ? 2 : 1);
}

void StalledFile::serve() {
  std::vector<std::byte> request(kRequestBytesMax);
  while (true) {
    std::array<pollfd, 2> entries{{{device_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
    ::poll(entries.data(), entries.size(), -1);
    if (entries[1].revents != 0) return;
    if (::read(device_.get(), request.data(), request.size()) <= 0) continue;
    const auto header = base::load<fuse_in_header>(request.data());
    const auto reply = [&](const auto& body) { answer(header.unique, 0, &body, sizeof body); };
    switch (header.opcode) {
      case FUSE_INIT: {
        fuse_init_out init{};
        init.major = FUSE_KERNEL_VERSION;
        init.minor = FUSE_KERNEL_MINOR_VERSION;
        init.max_write = 4096;
        reply(init);
        break;
      }
      case FUSE_LOOKUP: {
        fuse_entry_out entry{};
        entry.nodeid = kFileNode;
        entry.attr = attributes(kFileNode);
        reply(entry);
        break;
      }
      case FUSE_GETATTR: {
        fuse_attr_out attr{};
        attr.attr = attributes(header.nodeid);
        reply(attr);
        break;
      }
      case FUSE_OPEN:
        reply(fuse_open_out{});
        break;
      case FUSE_FLUSH:
        flush(header.unique, static_cast<pid_t>(header.pid));
        break;
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
        break;  // needs no answer
      case FUSE_RELEASE:
        answer(header.unique, 0, nullptr, 0);
        break;
      default:
        answer(header.unique, ENOSYS, nullptr, 0);
    }
  }
}

}  // namespace ckpt::test
