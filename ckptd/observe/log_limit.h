// Rate limit for log lines that clients can trigger: nobody fills a disk with the daemon's log.
//
// While ckptd serves, each period of kLogPeriod has room for kLogLinesPerUserMax lines that are
// logged while a message of one user is handled (ClientLogScope), for kLogLinesOfClientsMax of all
// users together, and for kLogLinesOfDaemonMax others, such as those about finished writes. Lines
// beyond that are counted and reported when the period is over. Critical lines always pass, and so
// does the event commit_deleted: a prune of many commits is listed in full in the log alone.
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
// Users that the report of a period names; the others are summed up.
inline constexpr size_t kLogUsersNamedMax = 8;
// In the place of a user: all users who may not connect. They have one part together.
inline constexpr uid_t kUsersNotAllowed = UINT32_MAX;

class LogLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Is a line to be logged? `user`: the client's, if one triggered it.
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
  std::map<std::optional<uid_t>, uint64_t> unreported_;  // left out of periods that are over
};

// The lines that this thread logs in its lifetime are triggered by a client of this user.
class ClientLogScope {
 public:
  explicit ClientLogScope(uid_t user);
  ~ClientLogScope();
  ClientLogScope(const ClientLogScope&) = delete;
  ClientLogScope& operator=(const ClientLogScope&) = delete;

 private:
  const std::optional<uid_t> before_;
};

// Puts all sinks of the logger behind the limit, which begins with begin_log_limit(). To be called
// before any other thread logs: spdlog reads the list of sinks without a lock.
void install_log_limit(spdlog::logger& logger);
// From now on the installed limit holds. From any thread.
void begin_log_limit();
// Logs what was left out of a period that is over. To be called from time to time.
void report_limited_log(LogLimit::Time now);

}  // namespace ckptd
