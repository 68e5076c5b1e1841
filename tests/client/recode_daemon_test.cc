// A real ckptd that encodes old commits, and is killed again and again meanwhile.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/client/trainers.h"

namespace ckpt::test {
namespace {

constexpr uint64_t kSteps = 4;
constexpr std::chrono::minutes kPatience(2);

// Disk space that the files of the folder take, in bytes.
uint64_t allocated_bytes(const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    struct stat status {};
    EXPECT_EQ(::stat(entry.path().c_str(), &status), 0);
    bytes += static_cast<uint64_t>(status.st_blocks) * 512;
  }
  return bytes;
}

std::string versions_of_all(client::Session& session, const SmallRun& run) {
  std::string all;
  for (const client::UnitInfo& unit : run.units()) {
    const auto answer =
        session.query("unit", R"({"target": "tiny", "unit": ")" + unit.name + "\"}", 10'000);
    EXPECT_TRUE(answer) << answer.error().message;
    if (!answer) return {};
    all += answer->json + "\n";
  }
  return all;
}

uint64_t stored_bytes(client::Session& session, const SmallRun& run) {
  uint64_t bytes = 0;
  std::istringstream lines(versions_of_all(session, run));
  for (std::string line; std::getline(lines, line);) {
    const auto document = nlohmann::json::parse(line);
    for (const auto& version : document.at("versions")) {
      bytes += version.at("stored_bytes").get<uint64_t>();
    }
  }
  return bytes;
}

// Waits until fewer than `bytes` are stored. Returns the number of stored bytes.
uint64_t wait_for_less(const DaemonProcess& daemon, const SmallRun& run, uint64_t bytes) {
  auto session = open_trainer(daemon, run);
  EXPECT_TRUE(session) << session.error().message;
  if (!session) return 0;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  uint64_t now = bytes;
  while (now >= bytes && std::chrono::steady_clock::now() < end) {
    now = stored_bytes(*session, run);
  }
  EXPECT_LT(now, bytes) << daemon.log();
  return now;
}

void expect_all(const DaemonProcess& daemon, const SmallRun& run) {
  auto session = open_trainer(daemon, run);
  ASSERT_OK(session);
  for (uint64_t step = 1; step <= kSteps; ++step) expect_state(*session, run, step);
}

TEST(RecodeDaemon, WhatIsOldTakesLessWhateverKillsIt) {
  const TempFolder folder;
  const std::string config = folder.path("ckptd.toml");
  std::ofstream(config) << "recode_after = \"1s\"\nscrub_rate = \"8MiB\"\n";
  SmallRun run;
  run.mask = 0x1f;  // five random bits in each byte
  uint64_t raw = 0;
  for (const uint64_t bytes : run.unit_bytes) raw += kSteps * bytes;

  DaemonProcess daemon;
  run_ranks(2, [&](uint32_t rank) {
    auto session = open_trainer(daemon, run);
    ASSERT_OK(session);
    ASSERT_OK(session->join(as_rank(rank, 2)));
    for (uint64_t step = 1; step <= kSteps; ++step) ASSERT_OK(save(*session, run, step, rank, 2));
    ASSERT_OK(session->leave());
  });
  EXPECT_EQ(daemon.stop(), 0);
  const uint64_t allocated = allocated_bytes(daemon.data() + "/segments");

  DaemonProcess recoding({"--config", config}, daemon.data());
  // Four kills in the middle of recoding, or fewer if it is faster than the polling.
  uint64_t stored = raw;
  for (int life = 0; stored > raw * 3 / 4 && !testing::Test::HasFailure(); ++life) {
    stored = wait_for_less(recoding, run, stored);
    if (life >= 4) continue;
    recoding.crash_and_restart();
    expect_all(recoding, run);
  }
  expect_all(recoding, run);

  const std::vector<std::string> gc = {program("ckptctl"), "gc", "--socket", recoding.socket()};
  ASSERT_EQ(run_program(gc).exit_code, 0);
  EXPECT_EQ(recoding.stop(), 0);
  EXPECT_LT(allocated_bytes(recoding.data() + "/segments"), allocated - raw / 8);

  // The journal alone gives the same answers.
  DaemonProcess plain({}, daemon.data());
  auto asker = open_trainer(plain, run);
  ASSERT_OK(asker);
  const std::string before = versions_of_all(*asker, run);
  EXPECT_EQ(run_program({program("ckptctl"), "rebuild", "--socket", plain.socket()}).exit_code, 0);
  EXPECT_EQ(versions_of_all(*asker, run), before);
  expect_all(plain, run);
  const Finished verified = run_program({program("ckptctl"), "verify", "--socket", plain.socket()});
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
  EXPECT_EQ(plain.stop(), 0);
}

}  // namespace
}  // namespace ckpt::test
