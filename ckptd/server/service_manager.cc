#include "ckptd/server/service_manager.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "ckptd/limits.h"
#include "ckptd/server/unix_socket.h"
#include "formats/base/bytes.h"
#include "formats/base/fd_message.h"
#include "formats/base/printable.h"
#include "formats/wire/protocol.h"

namespace ckptd {

namespace {

using ckpt::base::UniqueFd;

constexpr int kFirstFd = 3;  // SD_LISTEN_FDS_START
constexpr std::array kVariables = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
                                   "LISTEN_PID",    "LISTEN_FDS",    "LISTEN_FDNAMES"};

// Parses a whole number without any other characters.
std::optional<uint64_t> number(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class Variables {
 public:
  Variables(const std::map<std::string, std::string>& variables,
            std::vector<std::string>& complaints)
      : variables_(variables), complaints_(complaints) {}

  const std::string* find(const std::string& name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? nullptr : &found->second;
  }
  // 0: missing, or not a number from 0 to `most`.
  uint64_t number_of(const std::string& name, uint64_t most) const {
    const std::string* text = find(name);
    if (text == nullptr) return 0;
    const auto value = number(*text);
    if (value && *value <= most) return *value;
    complain(name, *text, fmt::format("should be a number of at most {}", most));
    return 0;
  }
  // Descriptors and pings are for one process; its children inherit the variables.
  bool meant_for(const std::string& name, pid_t own) const {
    return number_of(name, static_cast<uint64_t>(INT32_MAX)) == static_cast<uint64_t>(own);
  }
  void complain(const std::string& name, const std::string& text, const std::string& why) const {
    complaints_.push_back(fmt::format("${}: {}: {}", name, ckpt::base::shortened(text, 128), why));
  }

 private:
  const std::map<std::string, std::string>& variables_;
  std::vector<std::string>& complaints_;
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

bool is_listener(int fd) {
  const auto option = [fd](int name) {
    int value = -1;
    socklen_t length = sizeof(value);
    return ::getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
  };
  return option(SO_ACCEPTCONN) == 1 && option(SO_DOMAIN) == AF_UNIX &&
         option(SO_TYPE) == SOCK_STREAM;
}

// The address in `text`, which was checked: a path, or an abstract name after '@'.
std::pair<sockaddr_un, socklen_t> notify_address(const std::string& text) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, text.data(), text.size());
  if (text[0] == '@') address.sun_path[0] = '\0';
  const size_t length = offsetof(sockaddr_un, sun_path) + text.size() + (text[0] == '@' ? 0 : 1);
  return {address, static_cast<socklen_t>(length)};
}

}  // namespace

ServiceEnvironment read_service_environment(const std::map<std::string, std::string>& variables,
                                            pid_t own) {
  ServiceEnvironment environment;
  const Variables given(variables, environment.complaints);
  if (const std::string* path = given.find("NOTIFY_SOCKET"); path != nullptr) {
    constexpr size_t kPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;
    const bool good = path->size() > 1 && path->size() <= kPathBytesMax &&
                      ((*path)[0] == '/' || (*path)[0] == '@');
    if (good) {
      environment.notify_socket = *path;
    } else {
      given.complain("NOTIFY_SOCKET", *path,
                     fmt::format("should be a path, or @NAME, of at most {} bytes", kPathBytesMax));
    }
  }
  // Without WATCHDOG_PID every process of the service pings.
  if (given.find("WATCHDOG_PID") == nullptr || given.meant_for("WATCHDOG_PID", own)) {
    const auto usec = given.number_of("WATCHDOG_USEC", static_cast<uint64_t>(INT64_MAX) / 1000);
    if (usec > 0) environment.watchdog = std::chrono::microseconds(usec);
  }
  if (!given.meant_for("LISTEN_PID", own)) return environment;
  const uint64_t count = given.number_of("LISTEN_FDS", limits::kInheritedFdsMax);
  if (count == 0) return environment;
  const std::string* names = given.find("LISTEN_FDNAMES");
  if (names != nullptr) environment.fd_names = split(*names, ':');
  if (names != nullptr && environment.fd_names.size() != count) {
    given.complain("LISTEN_FDNAMES", *names,
                   fmt::format("{} names for {} descriptors", environment.fd_names.size(), count));
    environment.fd_names.clear();  // the assignment of names is unknown
  }
  environment.fd_names.resize(count);
  return environment;
}

ServiceManager::ServiceManager(const ServiceEnvironment& environment, std::vector<UniqueFd> fds)
    : address_(environment.notify_socket) {
  for (const std::string& complaint : environment.complaints) spdlog::warn("{}", complaint);
  if (environment.watchdog) ping_every_ = *environment.watchdog / 2;
  for (size_t i = 0; i < fds.size(); ++i) {
    if (!fds[i].valid()) continue;
    if (is_listener(fds[i].get())) {
      // A second socket of a kind is ignored, because the two cannot be told apart.
      UniqueFd& place = bound_path(fds[i].get()).ends_with(ckpt::wire::kArenaSocketSuffix)
                            ? arena_listener_
                            : listener_;
      if (!place.valid()) place = std::move(fds[i]);
    } else {
      kept_.push_back({environment.fd_names[i], std::move(fds[i])});
    }
  }
  if (address_.empty()) return;
  socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const timeval deadline{.tv_sec = limits::kNotifyDeadline.count(), .tv_usec = 0};
  (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof(deadline));
}

ServiceManager ServiceManager::of_this_process() {
  std::map<std::string, std::string> variables;
  for (const char* name : kVariables) {
    if (const char* value = std::getenv(name)) variables[name] = value;
    ::unsetenv(name);
  }
  const ServiceEnvironment environment = read_service_environment(variables, ::getpid());
  std::vector<UniqueFd> fds;
  fds.reserve(environment.fd_names.size());
  for (size_t i = 0; i < environment.fd_names.size(); ++i) {
    const int fd = kFirstFd + static_cast<int>(i);
    // A missing descriptor must not be closed later, when its number belongs to another file.
    const bool open = ::fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
    fds.emplace_back(open ? fd : -1);
  }
  return {environment, std::move(fds)};
}

void ServiceManager::ready() { notify("READY=1"); }

void ServiceManager::stopping() { notify("STOPPING=1"); }

void ServiceManager::alive(Clock::time_point now) {
  if (!ping_every_ || now < next_ping_) return;
  next_ping_ = now + *ping_every_;
  notify("WATCHDOG=1");
}

// FDPOLL=0: memory cannot be polled.
void ServiceManager::keep(const std::string& name, int fd) {
  notify(fmt::format("FDSTORE=1\nFDPOLL=0\nFDNAME={}", name), fd);
}

void ServiceManager::forget(const std::string& name) {
  // A name is part of the protocol's text. Names of ckptd are valid; a name that came with a
  // descriptor may contain anything. An invalid name cannot have been stored.
  for (const char c : name) {
    if (c < ' ' || c > '~' || c == ':') return;
  }
  if (!name.empty()) notify(fmt::format("FDSTOREREMOVE=1\nFDNAME={}", name));
}

void ServiceManager::notify(const std::string& state, int fd) {
  if (address_.empty()) return;
  const auto [target, target_bytes] = notify_address(address_);
  const ssize_t sent = ckpt::base::send_with_fd(
      socket_.get(), ckpt::as_bytes(state), fd,
      {.address = reinterpret_cast<const sockaddr*>(&target), .address_bytes = target_bytes});
  if (sent >= 0) {
    complained_ = false;
  } else if (!std::exchange(complained_, true)) {
    spdlog::warn("service manager on {}: {}", address_, std::strerror(errno));
  }
}

}  // namespace ckptd
