#include "client/src/daemon_identity.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>

#include "formats/base/printable.h"

namespace ckpt::lib {
namespace {

// In the initial namespace one line maps all users to themselves.
bool in_user_namespace() {
  std::ifstream map("/proc/self/uid_map");
  uint64_t inside = 0;
  uint64_t outside = 0;
  uint64_t count = 0;
  if (!(map >> inside >> outside >> count)) return false;
  return inside != 0 || outside != 0 || count != UINT32_MAX;
}

uid_t overflow_uid() {
  constexpr uid_t kDefault = 65'534;
  std::ifstream file("/proc/sys/kernel/overflowuid");
  uid_t uid = kDefault;
  return file >> uid ? uid : kDefault;
}

void warn_once(const std::string& path, uid_t uid) {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  std::fprintf(stderr,
               "libckpt: warning: socket %s: ckptd runs as a user outside of this user namespace "
               "(shown as %u), so it cannot be checked; set CKPTD_UID=%u to say that it is right\n",
               path.c_str(), uid, uid);
}

}  // namespace

Trust trust_in(uid_t peer, const TrustedUsers& users) {
  if (peer == 0 || peer == users.named) return Trust::kTrusted;
  // Checked first: where this process's own id has no mapping, it is the overflow uid, too.
  if (peer == users.overflow_uid) return Trust::kOutsideNamespace;
  return peer == users.own ? Trust::kTrusted : Trust::kNotTrusted;
}

Result<TrustedUsers> trusted_users() {
  TrustedUsers users{.own = ::geteuid(), .named = {}};
  if (in_user_namespace()) users.overflow_uid = overflow_uid();
  const char* named = std::getenv("CKPTD_UID");
  if (named == nullptr || *named == '\0') return users;
  uint32_t uid = 0;
  const char* end = named + std::strlen(named);
  const auto [at, error] = std::from_chars(named, end, uid);
  if (error != std::errc() || at != end || uid == UINT32_MAX) {
    return make_error(ErrorCode::kInvalidArgument,
                      "CKPTD_UID={}: not a user id; give the number that `id -u USER` prints",
                      base::printable(named));
  }
  users.named = uid;
  return users;
}

Status check_daemon(int socket, const std::string& path) {
  CKPT_ASSIGN(const TrustedUsers users, trusted_users());
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return make_error(ErrorCode::kUnavailable, "socket {}: SO_PEERCRED: {}", path,
                      std::strerror(errno));
  }
  switch (trust_in(peer.uid, users)) {
    case Trust::kTrusted:
      return ok_status();
    case Trust::kOutsideNamespace:
      warn_once(path, peer.uid);
      return ok_status();
    case Trust::kNotTrusted:
      break;
  }
  return make_error(ErrorCode::kPermissionDenied,
                    "socket {}: user {} listens there, which is neither root nor this user ({}); "
                    "if ckptd runs as user {}, set CKPTD_UID={}",
                    path, peer.uid, users.own, peer.uid, peer.uid);
}

}  // namespace ckpt::lib
