#include "tests/system/watched_run.h"

#include <signal.h>

#include <algorithm>
#include <fstream>

#include "tests/support/signals.h"

namespace systemtest {

using nlohmann::json;

namespace {

constexpr const char* kUntilStopped = "1000000";

bool is(const json& event, const char* kind) { return event.value("event", "") == kind; }

}  // namespace

Flags operator+(Flags a, const Flags& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

WatchedRun::WatchedRun(const std::string& program, const Flags& arguments, std::string events)
    : path_(std::move(events)), program_(program, arguments) {}

// Each line is parsed once: polling a thousand times a second must not take the ranks' CPU.
const std::vector<json>& WatchedRun::events() {
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(read_));
  for (std::string line; std::getline(file, line) && !file.eof(); read_ += line.size() + 1) {
    events_.push_back(json::parse(line));
  }
  return events_;
}

bool WatchedRun::has_event(const Wanted& wanted) { return std::ranges::any_of(events(), wanted); }

bool WatchedRun::await(const Wanted& wanted) {
  return program_.await([&] { return has_event(wanted); });
}

bool WatchedRun::await_step(uint64_t step) {
  return await([step](const json& event) {
    return is(event, "step") && event.value("step", uint64_t{0}) >= step;
  });
}

uint64_t WatchedRun::newest_step() {
  uint64_t newest = 0;
  for (const json& event : events()) {
    if (is(event, "step")) newest = std::max(newest, event.value("step", uint64_t{0}));
  }
  return newest;
}

bool WatchedRun::await_group(uint32_t size) {
  uint64_t step = 0;
  return await([&](const json& event) {
    const bool trains = is(event, "training") && event.value("goes_on", false);
    if (trains && event.value("group", 0u) == size) step = event.value("step", uint64_t{0}) + 2;
    return step != 0 && is(event, "step") && event.value("step", uint64_t{0}) >= step;
  });
}

bool WatchedRun::signal_rank(uint32_t rank, int number) {
  pid_t pid = -1;
  for (const json& event : events()) {
    if (is(event, "joining") && event.value("rank", 0u) == rank) pid = event.value("pid", -1);
  }
  return ckpt::test::send_signal(pid, number);
}

Ended WatchedRun::stop() {
  program_.signal(SIGTERM);
  Ended ended = program_.wait();
  EXPECT_EQ(ended.code(), 128 + SIGTERM) << ended.err;
  return ended;
}

const Flags ContinueTest::kModel = {"--experts", "8", "--batch", "8"};

Flags ContinueTest::continue_flags(const std::string& report, const std::string& ranks,
                                   const std::string& steps, const Flags& more) {
  std::filesystem::remove(events_);
  return arguments(report, model_ +
                               Flags{"--ranks", ranks, "--steps", steps, "--on-loss", "continue",
                                     "--events", events_} +
                               more);
}

json ContinueTest::run_continued(const std::string& report, const std::string& ranks,
                                 const Flags& more) {
  const Ended ended = run(program_, continue_flags(report, ranks, "12", more));
  EXPECT_EQ(ended.code(), 0) << ended.err;
  last_error_output_ = ended.err;
  return read_report(report);
}

WatchedRun ContinueTest::watch(const std::string& report, const std::string& ranks,
                               const Flags& more) {
  return {program_, continue_flags(report, ranks, kUntilStopped, more), events_};
}

}  // namespace systemtest
