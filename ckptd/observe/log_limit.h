// Rate limit for log lines that clients can trigger, so that no client fills a disk with the log.
//
// While ckptd serves, each period of kLogPeriod has three budgets: kLogLinesPerUserMax lines that
// are logged while one user's message is handled (ClientLogScope), kLogLinesOfClientsMax such lines
// of all users together, and kLogLinesOfDaemonMax others, such as those about finished writes.
// Lines beyond are counted and reported after the period. Critical lines always pass, as does the
// event commit_deleted: only the log lists all commits of a large prune.
#pragma once

#include <spdlog/logger.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ckptd {

// A node that saves every second logs a few lines a second.
inline constexpr std::chrono::milliseconds kLogPeriod{10'000};
inline constexpr size_t kLogLinesPerUserMax = 200;
inline constexpr size_t kLogLinesOfClientsMax = 1'000;
inline constexpr size_t kLogLinesOfDaemonMax = 1'000;
// Users that the report of a period names; the others are summed.
inline constexpr size_t kLogUsersNamedMax = 8;
// Pseudo-user for all users who may not connect. They share one budget.
inline constexpr uid_t kUsersNotAllowed = UINT32_MAX;

class LogLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // True if a line is to be logged. `user`: the client's, if one triggered it.
  bool admit(std::optional<uid_t> user, Time now);
  // Reports the lines that past periods left out: a sentence for each of the kLogUsersNamedMax
  // users with the most such lines, one for all other users, one for the daemon.
  std::vector<std::string> left_out(Time now);

 private:
  struct Count {
    size_t logged = 0;
    uint64_t left_out = 0;
  };
  void begin_period(Time now);

  std::mutex mutex_;
  Time began_{};
  std::map<std::optional<uid_t>, Count> counts_;  // of this period; no user: the daemon's own lines
  size_t of_clients_ = 0;
  std::map<std::optional<uid_t>, uint64_t> unreported_;  // left out in finished periods
};

// While this object lives, lines of this thread count as triggered by a client of this user.
class ClientLogScope {
 public:
  explicit ClientLogScope(uid_t user);
  ~ClientLogScope();
  ClientLogScope(const ClientLogScope&) = delete;
  ClientLogScope& operator=(const ClientLogScope&) = delete;

 private:
  const std::optional<uid_t> before_;
};

// Puts all sinks of the logger behind the limit, which begins with begin_log_limit(). Call this
// before any other thread logs: spdlog reads the list of sinks without a lock.
void install_log_limit(spdlog::logger& logger);
// Activates the installed limit. From any thread.
void begin_log_limit();
// Reports the lines left out in a finished period. Call it periodically.
void report_limited_log(LogLimit::Time now);

}  // namespace ckptd
