#include "ckptd/observe/log_limit.h"

#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

#include "ckptd/observe/log_event.h"

namespace ckptd {

namespace {

thread_local std::optional<uid_t> client_of_thread;
thread_local bool exempt = false;

LogLimit& limit_of_process() {
  static LogLimit limit;
  return limit;
}

class LimitedSink final : public spdlog::sinks::sink {
 public:
  explicit LimitedSink(spdlog::sink_ptr behind) : sink_(std::move(behind)) {}

  void log(const spdlog::details::log_msg& message) override {
    const LogEventScope* event = LogEventScope::current();
    const bool passes =
        exempt || (event != nullptr && event->name() == "commit_deleted") ||
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
  for (const auto& [user, lines] : std::exchange(unreported_, {})) {
    const std::string about = user ? fmt::format("that clients of user {} triggered", *user)
                                   : std::string("of ckptd's own");
    sentences.push_back(fmt::format("{} log lines {} were left out: more than {} in {} s", lines,
                                    about, user ? kLogLinesPerUserMax : kLogLinesOfDaemonMax,
                                    kLogPeriod.count() / 1000));
  }
  return sentences;
}

ClientLogScope::ClientLogScope(uid_t user)
    : before_(std::exchange(client_of_thread, std::optional(user))) {}

ClientLogScope::~ClientLogScope() { client_of_thread = before_; }

void limit_log(spdlog::logger& logger) {
  for (spdlog::sink_ptr& sink : logger.sinks()) {
    if (std::dynamic_pointer_cast<LimitedSink>(sink)) continue;
    sink = std::make_shared<LimitedSink>(std::move(sink));
  }
}

void report_limited_log(LogLimit::Time now) {
  for (const std::string& sentence : limit_of_process().left_out(now)) {
    exempt = true;
    spdlog::warn("{}", sentence);
    exempt = false;
  }
}

}  // namespace ckptd
