#include "tests/support/loop_disk.h"

#include <fcntl.h>
#include <sys/mount.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "formats/base/unique_fd.h"

namespace ckpt::test {

namespace {

bool runs(const std::string& command, const std::string& log) {
  return std::system((command + " >> '" + log + "' 2>&1 < /dev/null").c_str()) == 0;
}

}  // namespace

LoopDisk::LoopDisk(uint64_t bytes) {
  const std::string image = folder_.path("image");
  const std::string log = folder_.path("log");
  const std::string at = folder_.path("mounted");
  std::filesystem::create_directory(at);
  std::ofstream(image).close();
  std::filesystem::resize_file(image, bytes);
  const bool there = runs("mkfs.ext4 -q '" + image + "'", log) &&
                     runs("mount -o loop '" + image + "' '" + at + "'", log);
  if (there) return;
  std::ifstream said(log);
  std::getline(said, missing_);
  missing_ = "no ext4 on a loop device: " + missing_;
}

LoopDisk::~LoopDisk() {
  if (missing_.empty()) {
    EXPECT_EQ(::umount2(folder_.path("mounted").c_str(), MNT_DETACH), 0);
  }
}

void LoopDisk::fill() {
  const base::UniqueFd file(::open(path("others").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  ASSERT_TRUE(file.valid());
  off_t taken = 0;
  for (off_t more = off_t{1} << 30; more >= 4096;) {
    if (::posix_fallocate(file.get(), taken, more) == 0) {
      taken += more;
    } else {
      more /= 2;
    }
  }
  ASSERT_GT(taken, 0);
}

void LoopDisk::empty() { ASSERT_TRUE(std::filesystem::remove(path("others"))); }

}  // namespace ckpt::test
