// A real ckptd that encodes what it writes: nothing of it is seen through libckpt.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

#include "tests/client/trainers.h"

namespace ckpt::test {
namespace {

constexpr std::string_view kZstdFrame("\x28\xb5\x2f\xfd", 4);

// Flips a bit in the last frame of the segment files; false: there is none.
bool damage_last_frame(const DaemonProcess& daemon) {
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(daemon.data() + "/segments")) {
    files.insert(entry.path());
  }
  for (auto path = files.rbegin(); path != files.rend(); ++path) {
    std::fstream file(*path, std::ios::in | std::ios::out | std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const size_t frame = bytes.rfind(kZstdFrame);
    if (frame == std::string::npos) continue;
    file.clear();
    file.seekp(static_cast<std::streamoff>(frame + 50));
    file.put(static_cast<char>(bytes[frame + 50] ^ 4));
    return true;
  }
  return false;
}

TEST(CodecDaemon, WhatIsEncodedOutlivesAKillAndDamageIsNamed) {
  DaemonProcess daemon({"--codec", "zstd"});
  SmallRun run;
  run.mask = 0x1f;  // of which five bits in eight are left
  run_ranks(2, [&](uint32_t rank) {
    auto session = open_trainer(daemon, run);
    ASSERT_OK(session);
    ASSERT_OK(session->join(as_rank(rank, 2)));
    for (uint64_t step = 1; step <= 2; ++step) ASSERT_OK(save(*session, run, step, rank, 2));
    ASSERT_OK(session->leave());
  });
  daemon.crash_and_restart();
  {
    auto session = open_trainer(daemon, run);
    ASSERT_OK(session);
    expect_state(*session, run, 1);
    expect_state(*session, run, 2);
  }
  const std::vector<std::string> verify = {program("ckptctl"), "verify", "--socket",
                                           daemon.socket()};
  EXPECT_EQ(run_program(verify).exit_code, 0);
  EXPECT_EQ(daemon.stop(), 0);
  ASSERT_TRUE(damage_last_frame(daemon));
  daemon.start();
  const Finished damaged = run_program(verify);
  EXPECT_EQ(damaged.exit_code, 4) << damaged.out << damaged.err;
  EXPECT_THAT(damaged.out, testing::ContainsRegex("run tiny step 2 unit layers.[0-9]"));
  EXPECT_EQ(daemon.stop(), 0);
}

}  // namespace
}  // namespace ckpt::test
