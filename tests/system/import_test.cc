// A run that was exported whole, and imported under another name, trains on as the first one does.
#include <gmock/gmock.h>

#include "tests/system/training.h"

namespace systemtest {
namespace {

using nlohmann::json;
using testing::HasSubstr;
namespace fs = std::filesystem;

TEST_F(TrainingTest, ImportedRunResumesWithSameBits) {
  const std::string store = folder_ / "store";
  train("first.json", {"--ranks", "2", "--steps", "6", "--checkpoint-every", "3", "--lr", "0.003",
                       "--warmup", "5", "--data-dir", store});
  {
    const Ckptd daemon(store);
    const auto must = [&](std::vector<std::string> arguments) {
      const Ended ended = daemon.ctl(std::move(arguments));
      EXPECT_EQ(ended.code(), 0) << ended.err;
      return ended;
    };
    const std::string whole = folder_ / "whole";
    must({"export", "tiny@6", "--out", whole, "--resumable", "--shard-bytes", "64KiB"});
    EXPECT_EQ(must({"import", whole, "--run", "copy"}).json().at("resumable"), true);
    must({"export", "copy@6", "--out", folder_ / "again", "--resumable", "--shard-bytes", "64KiB"});
    size_t files = 0;
    for (const auto& file : fs::directory_iterator(whole)) {
      const std::string name = file.path().filename();
      EXPECT_TRUE(read_file(file.path()) == read_file((folder_ / "again") + "/" + name)) << name;
      ++files;
    }
    EXPECT_GT(files, 4u);
    const std::string model = folder_ / "model";
    must({"export", "tiny@6", "--out", model});
    const Ended weights = must({"import", model, "--run", "weights"});
    EXPECT_EQ(weights.json().at("resumable"), false);
    EXPECT_THAT(weights.err, HasSubstr("not resumed"));
  }
  const std::vector<std::string> on = {"--ranks",  "2",      "--steps",    "20",
                                       "--resume", "latest", "--data-dir", store};
  auto copy = on;
  copy.insert(copy.end(), {"--run", "copy"});
  const auto original = bits(train("original.json", on));
  ASSERT_EQ(original.size(), 14u) << "steps 7 to 20";
  EXPECT_EQ(bits(train("copy.json", copy)), original);

  auto weights = on;
  weights.insert(weights.end(), {"--run", "weights"});
  const Ended refused = run("moetrain", arguments("weights.json", weights));
  EXPECT_EQ(refused.code(), 1);
  EXPECT_THAT(refused.err, HasSubstr("run weights"));
}

}  // namespace
}  // namespace systemtest
