// --log-format json: every log line is one JSON object, whatever bytes the message holds.
#include "ckptd/observe/log_format.h"

#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <time.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ckptd/observe/log_event.h"
#include "tests/support/daemon_process.h"
#include "tests/support/service_manager.h"

namespace ckpt::test {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;

constexpr char kTime[] = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z";

std::vector<json> lines_of(const std::string& log) {
  std::vector<json> lines;
  std::istringstream text(log);
  for (std::string line; std::getline(text, line);) {
    lines.push_back(json::parse(line, nullptr, false));
    EXPECT_TRUE(lines.back().is_object()) << line;
  }
  return lines;
}

TEST(LogFormat, EveryLineIsJsonObject) {
  ServiceManager manager({.arguments = {"--arena", "64MiB", "--log-format", "json"}});
  manager.start();
  const pid_t pid = manager.pid();
  EXPECT_EQ(manager.stop(), 0);
  std::vector<std::string> messages;
  std::vector<std::string> events;
  for (const json& line : lines_of(manager.log())) {
    EXPECT_THAT(line.at("time").get<std::string>(), MatchesRegex(kTime));
    EXPECT_EQ(line.at("level"), "info");
    EXPECT_EQ(line.at("process"), pid);
    messages.push_back(line.at("message"));
    if (line.contains("event")) events.push_back(line.at("event"));
  }
  EXPECT_THAT(messages, Contains("ready"));
  EXPECT_THAT(events, ElementsAre("recovered", "started", "ready", "draining"));
  EXPECT_THAT(messages, Contains(HasSubstr("SIGTERM: draining")));
}

TEST(LogFormat, FailedStartLogsJson) {
  const TempFolder folder;
  const auto failed = run_program({program("ckptd"), "--data", folder.path("d"), "--listen",
                                   folder.path("none/s"), "--log-format", "json"});
  EXPECT_EQ(failed.exit_code, 1);
  const auto lines = lines_of(failed.err);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back().at("level"), "critical");
  EXPECT_EQ(lines.back().at("event"), "failed");
  EXPECT_EQ(lines.back().at("reason"), lines.back().at("message"));
  EXPECT_THAT(lines.back().at("message").get<std::string>(), HasSubstr("none/s"));
  const auto unknown =
      run_program({program("ckptd"), "--data", folder.path("d"), "--log-format", "xml"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--log-format xml: should be text or json"));
}

TEST(LogFormat, AnyBytesMakeOneLine) {
  const auto formatter = ckptd::make_log_formatter("json")->clone();
  const std::string message("a\n\"b\"\\ \x01 \xff\xfe {} \xc3\xa9 \0 end", 23);
  spdlog::memory_buf_t out;
  formatter->format(spdlog::details::log_msg("", spdlog::level::warn,
                                             spdlog::string_view_t(message.data(), message.size())),
                    out);
  const auto lines = lines_of(std::string(out.data(), out.size()));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].at("level"), "warning");
  EXPECT_THAT(lines[0].at("message").get<std::string>(), HasSubstr("a\n\"b\"\\ \x01 "));
}

TEST(LogFormat, TextIsOneLineWithoutControls) {
  std::ostringstream log;
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_st>(log);
  sink->set_formatter(ckptd::make_log_formatter("text"));
  spdlog::logger logger("text", sink);
  logger.info("run {}: {}", "\x1b]0;t\x07", "two\nlines \xc2\x9b \xc3\xa4 \xff");
  EXPECT_THAT(log.str(),
              testing::EndsWith("info run \\x1b]0;t\\x07: two\\nlines \\u{9b} \xc3\xa4 \\xff\n"));
}

TEST(LogFormat, TextHasTimeInUtc) {
  ::setenv("TZ", "FOO-5", 1);
  ::tzset();
  const spdlog::log_clock::time_point time(std::chrono::milliseconds(1'700'000'000'123));
  spdlog::memory_buf_t out;
  ckptd::make_log_formatter("text")->format(
      spdlog::details::log_msg(time, spdlog::source_loc(), "", spdlog::level::info, "ready"), out);
  ::unsetenv("TZ");
  ::tzset();
  EXPECT_EQ(std::string(out.data(), out.size()), "2023-11-14T22:13:20.123Z info ready\n");
}

// Fields stay apart from the message, whatever bytes either holds.
TEST(LogFormat, FieldsAreEscapedJsonMembers) {
  std::ostringstream log;
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_st>(log);
  sink->set_formatter(ckptd::make_log_formatter("json"));
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("json", sink));
  const std::string run("\",\"step\":7}\n{\"\xff\0\x1b", 17);
  const std::vector<uint32_t> ranks = {0, UINT32_MAX};
  const ckptd::LogValue none;
  ckptd::log_event(spdlog::level::info, "event_of_a_test",
                   {{"run", run},
                    {"step", UINT64_MAX},
                    {"seconds", 0.25},
                    {"whole", true},
                    {"lost", ranks},
                    {"resume_step", none}},
                   "run {} {{}}", run);
  spdlog::info("a line of no event");
  ckptd::log_event(spdlog::level::debug, "below_the_level", {}, "not shown");
  spdlog::set_default_logger(before);
  const auto lines = lines_of(log.str());
  ASSERT_EQ(lines.size(), 2u) << log.str();
  json fields = lines[0];
  for (const char* key : {"time", "level", "process", "message"}) fields.erase(key);
  EXPECT_EQ(fields, json({{"event", "event_of_a_test"},
                          {"run", std::string("\",\"step\":7}\n{\"\xef\xbf\xbd\0\x1b", 19)},
                          {"step", UINT64_MAX},
                          {"seconds", 0.25},
                          {"whole", true},
                          {"lost", {0, UINT32_MAX}},
                          {"resume_step", nullptr}}));
  EXPECT_FALSE(lines[1].contains("event"));
}

}  // namespace
}  // namespace ckpt::test
