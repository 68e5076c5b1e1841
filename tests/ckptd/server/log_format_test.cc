// --log-format json: every line that ckptd says is an object, whatever is in it.
#include "ckptd/observe/log_format.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/daemon_process.h"
#include "tests/support/service_manager.h"

namespace ckpt::test {
namespace {

using nlohmann::json;
using testing::Contains;
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

TEST(LogFormat, EveryLineOfALifeIsAnObject) {
  ServiceManager manager({.arguments = {"--arena", "64MiB", "--log-format", "json"}});
  manager.start();
  const pid_t pid = manager.pid();
  EXPECT_EQ(manager.stop(), 0);
  std::vector<std::string> messages;
  for (const json& line : lines_of(manager.log())) {
    EXPECT_THAT(line.at("time").get<std::string>(), MatchesRegex(kTime));
    EXPECT_EQ(line.at("level"), "info");
    EXPECT_EQ(line.at("process"), pid);
    messages.push_back(line.at("message"));
  }
  EXPECT_THAT(messages, Contains("ready"));
  EXPECT_THAT(messages, Contains(HasSubstr("SIGTERM: draining")));
}

TEST(LogFormat, AStartThatFailsSaysSoInTheSameWay) {
  const TempFolder folder;
  const auto failed = run_program({program("ckptd"), "--data", folder.path("d"), "--listen",
                                   folder.path("none/s"), "--log-format", "json"});
  EXPECT_EQ(failed.exit_code, 1);
  const auto lines = lines_of(failed.err);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back().at("level"), "critical");
  EXPECT_THAT(lines.back().at("message").get<std::string>(), HasSubstr("none/s"));
  const auto unknown =
      run_program({program("ckptd"), "--data", folder.path("d"), "--log-format", "xml"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--log-format xml: text or json"));
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

}  // namespace
}  // namespace ckpt::test
