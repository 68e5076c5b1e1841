// A real ckptd that encodes its segments: clients of libckpt see no difference.
#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "tests/client/trainers.h"

namespace ckpt::test {
namespace {

constexpr std::string_view kZstdFrame("\x28\xb5\x2f\xfd", 4);

// Flips a bit in the last frame of the segment files. False: there is no frame.
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

TEST(CodecDaemon, EncodedUnitsSurviveKillAndDamageIsReported) {
  DaemonProcess daemon({"--codec", "zstd"});
  SmallRun run;
  run.mask = 0x1f;  // five random bits in each byte
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
  EXPECT_THAT(damaged.out, testing::ContainsRegex("tiny~[0-9]+@2 unit layers.[0-9]"));
  EXPECT_EQ(daemon.stop(), 0);
}

TEST(CodecDaemon, DeltasSurviveKillAndPrune) {
  DaemonProcess daemon({"--codec", "delta"});
  SmallRun run;
  run.one_in = 50;
  const auto versions = [&](client::Session& session) {
    const auto answer = session.query("unit", R"({"target": "tiny", "unit": "layers.3"})", 10'000);
    EXPECT_TRUE(answer) << answer.error().message;
    return nlohmann::json::parse(answer->json).at("versions");
  };
  run_ranks(2, [&](uint32_t rank) {
    auto session = open_trainer(daemon, run);
    ASSERT_OK(session);
    ASSERT_OK(session->join(as_rank(rank, 2)));
    for (uint64_t step = 1; step <= 3; ++step) ASSERT_OK(save(*session, run, step, rank, 2));
    ASSERT_OK(session->leave());
  });
  daemon.crash_and_restart();
  {
    auto session = open_trainer(daemon, run);
    ASSERT_OK(session);
    for (uint64_t step = 1; step <= 3; ++step) expect_state(*session, run, step);
    EXPECT_EQ(versions(*session).back().at("base_bytes"), 0);
    EXPECT_GT(versions(*session).front().at("base_bytes"), 900'000);
    EXPECT_LT(versions(*session).front().at("stored_bytes"), 200'000);
    ASSERT_OK(session->query("prune", R"({"target": "tiny", "rules": {"last": 1}})", 10'000));
  }
  ASSERT_EQ(run_program({program("ckptctl"), "gc", "--socket", daemon.socket()}).exit_code, 0);
  daemon.crash_and_restart();
  {
    auto session = open_trainer(daemon, run);
    ASSERT_OK(session);
    expect_state(*session, run, 3);
    EXPECT_EQ(versions(*session).size(), 1u);
  }
  const Finished verified =
      run_program({program("ckptctl"), "verify", "--socket", daemon.socket()});
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
  EXPECT_EQ(daemon.stop(), 0);
}

// Raw size of all versions that are compressed on the disk.
uint64_t encoded_bytes(client::Session& session, const SmallRun& run) {
  uint64_t bytes = 0;
  for (const client::UnitInfo& unit : run.units()) {
    const auto answer =
        session.query("unit", R"({"target": "tiny", "unit": ")" + unit.name + "\"}", 10'000);
    EXPECT_TRUE(answer) << answer.error().message;
    const auto document = nlohmann::json::parse(answer->json);
    for (const auto& version : document.at("versions")) {
      if (version.at("stored_bytes") < version.at("bytes")) {
        bytes += version.at("bytes").get<uint64_t>();
      }
    }
  }
  return bytes;
}

// The client sends its choice of codecs to the next daemon, which does not know it.
TEST(CodecDaemon, RestartedDaemonLearnsCodecsOfUnits) {
  DaemonProcess daemon;
  SmallRun run;
  run.mask = 0x1f;
  run.codecs = {CKPT_CODEC_ZSTD, CKPT_CODEC_ZSTD, CKPT_CODEC_NONE, CKPT_CODEC_DEFAULT};
  auto session = open_trainer(daemon, run);
  ASSERT_OK(session);
  ASSERT_OK(session->join(as_rank(0, 1)));
  ASSERT_OK(save(*session, run, 1, 0, 1));
  EXPECT_EQ(encoded_bytes(*session, run), 300'000u) << "five bytes do not get smaller";
  daemon.crash_and_restart();
  ASSERT_OK(save(*session, run, 2, 0, 1));
  EXPECT_EQ(encoded_bytes(*session, run), 600'000u);
  expect_state(*session, run, 1);
  expect_state(*session, run, 2);
  ASSERT_OK(session->leave());
}

// A C caller may pass any number.
std::string refusal_of_codec(client::Session& session, int number) {
  const std::array<int, 2> numbers = {CKPT_CODEC_ZSTD, number};
  std::array<ckpt_codec, 2> codecs;
  static_assert(sizeof codecs == sizeof numbers);
  std::memcpy(codecs.data(), numbers.data(), sizeof codecs);
  const std::array<ckpt_tensor, 1> none{};
  const std::array<ckpt_unit, 2> units = {
      {{"a", -1, -1, nullptr, 100, none.data(), 0}, {"b", -1, -1, nullptr, 100, none.data(), 0}}};
  ckpt_register_options how{};
  how.struct_size = sizeof how;
  how.codecs = codecs.data();
  EXPECT_EQ(ckpt_register_units_with(session.handle(), units.data(), units.size(), &how),
            CKPT_E_INVALID_ARGUMENT);
  return ckpt_session_error(session.handle());
}

TEST(CodecDaemon, RefusesUnknownCodecNumbers) {
  DaemonProcess daemon;
  client::OpenOptions options;
  options.socket = daemon.socket();
  options.run = "tiny";
  auto session = client::Session::open(options);
  ASSERT_OK(session);
  for (const int wrong : {5, 7, -1, 1 << 30}) {
    EXPECT_THAT(refusal_of_codec(*session, wrong),
                testing::HasSubstr("unit b: codec " + std::to_string(wrong)));
  }
  EXPECT_THAT(refusal_of_codec(*session, CKPT_CODEC_AUTO),
              testing::HasSubstr("unit b: codec auto was removed: use none, or zstd where the disk "
                                 "is slower than about 1 GB/s"));
}

}  // namespace
}  // namespace ckpt::test
