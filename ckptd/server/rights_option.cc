#include "ckptd/server/rights_option.h"

#include <sys/socket.h>

namespace ckptd {

namespace {

#ifndef SO_PASSRIGHTS
constexpr int kPassRights = 83;  // SO_PASSRIGHTS of Linux 6.16, not in Debian 12's headers
#else
constexpr int kPassRights = SO_PASSRIGHTS;
#endif

}  // namespace

bool RightsOption::allow(int socket, bool allowed) const {
  const int value = allowed ? 1 : 0;
  return try_kernel_ && ::setsockopt(socket, SOL_SOCKET, kPassRights, &value, sizeof(value)) == 0;
}

bool RightsOption::allowed(int socket) const {
  int value = 1;
  socklen_t length = sizeof(value);
  if (!try_kernel_ || ::getsockopt(socket, SOL_SOCKET, kPassRights, &value, &length) != 0) {
    return true;
  }
  return value != 0;
}

}  // namespace ckptd
