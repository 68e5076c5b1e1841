// A run on a disk that another user fills and later frees.
#include <algorithm>
#include <set>

#include "tests/support/loop_disk.h"
#include "tests/system/training.h"

namespace systemtest {
namespace {

using nlohmann::json;

// Larger than ckptd's disk reserve, which snapshots never use.
constexpr uint64_t kDiskBytes = 400ull << 20;

bool announced(const json& event) {
  return event.at("event") == "snapshot" && event.value("durable", false);
}
bool found_disk_full(const json& event) {
  const std::string text = event.value("text", "");
  return event.at("event") == "snapshot" && !event.value("durable", false) &&
         (text.find("disk") != std::string::npos || text.find("space") != std::string::npos);
}

class DiskFullTest : public TrainingTest {};

TEST_F(DiskFullTest, TrainingContinuesAndSavesOnceDiskHasSpace) {
  ckpt::test::LoopDisk disk(kDiskBytes);
  if (!disk.missing().empty()) GTEST_SKIP() << disk.missing();
  const std::vector<std::string> same = {"--ranks", "2", "--steps", "200", "--checkpoint-every",
                                         "2"};
  const std::string events = folder_ / "events.jsonl";
  auto with = same;
  with.insert(with.end(), {"--data-dir", disk.path("store"), "--events", events});
  Program program("moetrain", arguments("full.json", with));
  const auto await_event = [&](bool (*of)(const json&)) {
    return program.await([&] { return std::ranges::any_of(read_lines(events), of); });
  };
  ASSERT_TRUE(await_event(announced)) << program.wait().err;
  disk.fill();
  ASSERT_TRUE(await_event(found_disk_full)) << program.wait().err;
  disk.empty();
  const Ended ended = program.wait();
  EXPECT_EQ(ended.code(), 0) << ended.err;
  EXPECT_EQ(ended.err.find("ckptd is lost"), std::string::npos) << ended.err;
  EXPECT_EQ(bits(read_report("full.json")), bits(train("quiet.json", same)));

  std::set<uint64_t> steps;
  for (const json& event : read_lines(events)) {
    if (announced(event)) steps.insert(event.at("step").get<uint64_t>());
  }
  EXPECT_TRUE(steps.contains(200)) << "the last one";
  const Ckptd daemon(disk.path("store"));
  std::set<uint64_t> listed;
  for (const json& commit : daemon.ctl({"log", "tiny"}).json()) {
    listed.insert(commit.at("step").get<uint64_t>());
  }
  EXPECT_EQ(listed, steps);
  const Ended verified = daemon.ctl({"verify"});
  EXPECT_EQ(verified.code(), 0) << verified.out << verified.err;
}

}  // namespace
}  // namespace systemtest
