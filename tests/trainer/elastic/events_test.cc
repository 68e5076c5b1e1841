#include "trainer/elastic/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <random>

#include "trainer/elastic/process.h"
#include "trainer/elastic/rank_options.h"

namespace moetrain {

namespace {

TEST(EventsTest, LogTextRoundTrips) {
  RankEvent event{.header = {.rank = 3, .time_ns = 123'456'789'012, .epoch = 4, .step = 30},
                  .body = LogEvent{"line one\nline \"two\" \xff"}};
  const std::string line = to_line(event);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  const auto back = parse_event(line);
  ASSERT_TRUE(back.ok()) << back.error().message;
  event.body = LogEvent{"line one\nline \"two\" \xef\xbf\xbd"};  // invalid UTF-8 is replaced
  EXPECT_EQ(*back, event);
}

TEST(EventsTest, EveryLineHasItsRankTimeAndBits) {
  const auto now = std::chrono::system_clock::now();
  const std::string line = to_line(
      {.header = {.time_ns = monotonic_ns(), .step = 1}, .body = StepEvent{.loss_bits = 0x3f80}});
  EXPECT_THAT(line, testing::HasSubstr(R"("rank":0)"));
  EXPECT_THAT(line, testing::HasSubstr(R"("loss_bits":"00003f80")"));
  // The wall clock in the format of ckptd's log: within a minute of this test.
  const size_t at = line.find("\"time\":\"");
  ASSERT_NE(at, std::string::npos) << line;
  std::tm parts{};
  const std::string time = line.substr(at + 8, 27);
  ASSERT_NE(::strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S", &parts), nullptr) << time;
  EXPECT_EQ(time.back(), 'Z');
  const auto apart = std::abs(::timegm(&parts) - std::chrono::system_clock::to_time_t(now));
  EXPECT_LT(apart, 60) << time;
  for (const char* bits : {"\"3f80\"", "16256", "\"00003f8g\"", "\"000003f80\""}) {
    const auto bad = parse_event(fmt::format(R"({{"event":"step","loss_bits":{}}})", bits));
    EXPECT_FALSE(bad.ok()) << bits;
  }
}

TEST(EventsTest, ReaderAcceptsAnyStreamSplit) {
  std::string stream;
  for (uint64_t step = 1; step <= 20; ++step) {
    stream += to_line({.header = {.step = step}, .body = StepEvent{.loss_bits = 0x3f800000}});
  }
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    EventReader reader;
    std::vector<RankEvent> events;
    for (size_t at = 0; at < stream.size();) {
      const size_t count = std::min<size_t>(1 + random() % 200, stream.size() - at);
      reader.append(std::string_view(stream).substr(at, count));
      for (RankEvent& event : reader.take()) events.push_back(std::move(event));
      at += count;
    }
    ASSERT_EQ(events.size(), 20u);
    for (uint64_t step = 1; step <= 20; ++step) EXPECT_EQ(events[step - 1].header.step, step);
  }
}

TEST(EventsTest, UnparsableLinesBecomeLogEvents) {
  EventReader reader;
  reader.append(
      "terminate called\n{\"event\":\"step\",\"step\":\"x\"}\n{\"event\":\"nonsense\"}\n");
  reader.append("{\"event\":\"step\",\"step\":4}\nhalf a li");
  const auto events = reader.take();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].body, EventBody(LogEvent{"terminate called"}));
  EXPECT_NE(events[1].as<LogEvent>(), nullptr);
  EXPECT_NE(events[2].as<LogEvent>(), nullptr);
  EXPECT_NE(events[3].as<StepEvent>(), nullptr);
  EXPECT_EQ(events[3].header.step, 4u);
}

TEST(EventsTest, RefusesFieldsOfWrongType) {
  for (const char* line :
       {"", "[]", "7", "{}", R"({"event":3})", R"({"event":"step","rank":"0"})",
        R"({"event":"training","stale_units":[1,"2"]})", R"({"event":"training","resumed":1})",
        R"({"event":"replanned","slots_before":[1]})", R"({"event":"log","text":["a"]})",
        R"({"event":"step","ms":1)"}) {
    EXPECT_FALSE(parse_event(line).ok()) << line;
  }
}

TEST(EventsTest, UnknownFieldsAndNullsAreIgnored) {
  const auto event = parse_event(R"({"event":"joining","pid":null,"rank":2,"ms":"x","new":[{}]})");
  ASSERT_TRUE(event.ok()) << event.error().message;
  EXPECT_EQ(*event, (RankEvent{.header = {.rank = 2}, .body = JoiningEvent{}}));
}

TEST(EventsTest, LastEventOutlivesKilledProcess) {
  auto pipe = make_pipe();
  ASSERT_TRUE(pipe.ok());
  Process::Options options;
  options.arguments = {"/bin/sh", "-c", "echo '{\"event\":\"dying\",\"step\":33}' >&3; kill -9 $$"};
  options.descriptors = {{pipe->write.get(), kEventFd}};
  auto process = Process::start(options);
  ASSERT_TRUE(process.ok()) << process.error().message;
  const auto end = process->wait(20'000);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->signal, 9);
  EXPECT_THAT(end->text(), testing::HasSubstr("signal 9"));
  EXPECT_FALSE(process->reap().has_value()) << "an end is told once";
  pipe->write.reset();
  char bytes[256];
  const ssize_t n = ::read(pipe->read.get(), bytes, sizeof bytes);
  ASSERT_GT(n, 0);
  EventReader reader;
  reader.append({bytes, static_cast<size_t>(n)});
  const auto events = reader.take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_NE(events[0].as<DyingEvent>(), nullptr);
  EXPECT_EQ(events[0].header.step, 33u);
}

TEST(ProcessTest, SaysWhyItCannotStart) {
  Process::Options options;
  options.arguments = {"/nonexistent/ckptd"};
  const auto process = Process::start(options);
  ASSERT_FALSE(process.ok());
  EXPECT_THAT(process.error().message, testing::HasSubstr("/nonexistent/ckptd"));
}

TEST(ProcessTest, InheritsOnlyGivenDescriptors) {
  auto unrelated = make_pipe();
  ASSERT_TRUE(unrelated.ok());
  const int leaked = ::dup(unrelated->write.get());  // without close-on-exec
  Process::Options options;
  options.arguments = {
      "/bin/sh", "-c",
      "test \"$GIVEN\" = yes || exit 3; test ! -e /proc/self/fd/" + std::to_string(leaked)};
  options.environment = {"GIVEN=yes"};
  auto process = Process::start(options);
  ASSERT_TRUE(process.ok());
  const auto end = process->wait(20'000);
  ::close(leaked);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->exit_code, 0) << end->text();
}

TEST(RankOptionsTest, RoundTripThroughJson) {
  RankOptions options;
  options.nodes = {0, 1, kOwnNode, 0};
  options.data = {"a b", "c\"d"};
  options.run = "tiny";
  options.socket = "/tmp/x.sock";
  options.rank = 2;
  options.ranks = 4;
  options.device = "cuda";
  options.gpu = 3;
  options.steps = 60;
  options.checkpoint_every = 5;
  options.resume = CKPT_RESUME_AT_STEP;
  options.resume_step = 30;
  options.kill_at = {33, 40};
  options.leave_after = {7};
  options.kill_in = {"join", "settle"};
  options.placement = {{{0, 1}, {1, 2}, {}, {3}}};
  options.check_replicas_every = 7;
  options.expert_state = ExpertState::kSharded;
  options.schedule = {.prefetch = 1, .delayed_reshard = false};
  options.trace_schedule = true;
  const auto back = parse_rank_options(to_json(options));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(to_json(*back), to_json(options));
  EXPECT_EQ(back->expert_state, options.expert_state);
  EXPECT_EQ(back->placement, options.placement);
  EXPECT_EQ(back->schedule, options.schedule);
  EXPECT_TRUE(back->trace_schedule);
  for (const char* bad : {"", "{}", "[]", "{\"config\": 3}"}) {
    EXPECT_FALSE(parse_rank_options(bad).ok()) << bad;
  }
  options.schedule.prefetch = kPrefetchMax + 1;
  EXPECT_FALSE(parse_rank_options(to_json(options)).ok());
  options.schedule.prefetch = kPrefetchMax;
  options.rank = 4;
  EXPECT_FALSE(parse_rank_options(to_json(options)).ok());
}

}  // namespace
}  // namespace moetrain
