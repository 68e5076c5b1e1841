#include "ckptd/observe/log_limit.h"

#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "ckptd/observe/log_event.h"

namespace ckptd {

namespace {

thread_local std::optional<uid_t> client_of_thread;
thread_local bool exempt = false;
std::atomic<bool> limit_holds = false;

LogLimit& limit_of_process() {
  static LogLimit limit;
  return limit;
}

std::string name_of_user(uid_t user) {
  return user == kUsersNotAllowed ? "users who may not connect" : fmt::format("user {}", user);
}

class LimitedSink final : public spdlog::sinks::sink {
 public:
  explicit LimitedSink(spdlog::sink_ptr behind) : sink_(std::move(behind)) {}

  void log(const spdlog::details::log_msg& message) override {
    const LogEventScope* event = LogEventScope::current();
    const bool passes =
        exempt || !limit_holds || (event != nullptr && event->name() == "commit_deleted") ||
        message.level >= spdlog::level::critical ||
        limit_of_process().admit(client_of_thread, std::chrono::steady_clock::now());
    if (passes) sink_->log(message);
  }
  void flush() override { sink_->flush(); }
  void set_pattern(const std::string& pattern) override { sink_->set_pattern(pattern); }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    sink_->set_formatter(std::move(formatter));
  }

 private:
  const spdlog::sink_ptr sink_;
};

}  // namespace

void LogLimit::begin_period(Time now) {
  for (const auto& [user, count] : counts_) {
    if (count.left_out > 0) unreported_[user] += count.left_out;
  }
  counts_.clear();
  of_clients_ = 0;
  began_ = now;
}

bool LogLimit::admit(std::optional<uid_t> user, Time now) {
  const std::lock_guard lock(mutex_);
  if (now - began_ >= kLogPeriod) begin_period(now);
  Count& count = counts_[user];
  const size_t most = user ? kLogLinesPerUserMax : kLogLinesOfDaemonMax;
  const bool room = !user || of_clients_ < kLogLinesOfClientsMax;
  if (count.logged >= most || !room) {
    ++count.left_out;
    return false;
  }
  ++count.logged;
  if (user) ++of_clients_;
  return true;
}

std::vector<std::string> LogLimit::left_out(Time now) {
  const std::lock_guard lock(mutex_);
  if (now - began_ >= kLogPeriod) begin_period(now);
  std::vector<std::string> sentences;
  const auto seconds = kLogPeriod.count() / 1000;
  const auto of_clients = [&](uint64_t lines, const std::string& clients) {
    sentences.push_back(fmt::format(
        "{} log lines that clients of {} triggered were left out: at most {} for one user and {} "
        "for all users are logged in {} s",
        lines, clients, kLogLinesPerUserMax, kLogLinesOfClientsMax, seconds));
  };
  std::vector<std::pair<uint64_t, uid_t>> users;
  for (const auto& [user, lines] : std::exchange(unreported_, {})) {
    if (user) {
      users.emplace_back(lines, *user);
      continue;
    }
    sentences.push_back(
        fmt::format("{} log lines of ckptd's own were left out: at most {} are logged in {} s",
                    lines, kLogLinesOfDaemonMax, seconds));
  }
  std::sort(users.rbegin(), users.rend());
  const size_t named = std::min(users.size(), kLogUsersNamedMax);
  for (size_t i = 0; i < named; ++i) of_clients(users[i].first, name_of_user(users[i].second));
  uint64_t others = 0;
  for (size_t i = named; i < users.size(); ++i) others += users[i].first;
  if (others > 0) of_clients(others, fmt::format("{} other users", users.size() - named));
  return sentences;
}

ClientLogScope::ClientLogScope(uid_t user)
    : before_(std::exchange(client_of_thread, std::optional(user))) {}

ClientLogScope::~ClientLogScope() { client_of_thread = before_; }

void install_log_limit(spdlog::logger& logger) {
  for (spdlog::sink_ptr& sink : logger.sinks()) {
    sink = std::make_shared<LimitedSink>(std::move(sink));
  }
}

void begin_log_limit() { limit_holds = true; }

void report_limited_log(LogLimit::Time now) {
  for (const std::string& sentence : limit_of_process().left_out(now)) {
    exempt = true;
    spdlog::warn("{}", sentence);
    exempt = false;
  }
}

}  // namespace ckptd
