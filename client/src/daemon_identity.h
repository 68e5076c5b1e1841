// The user that a daemon runs as: libckpt gives its memory, and believes answers, only of users
// that it trusts. A path is no identity: whoever can write to its folder can listen there.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "formats/base/result.h"

namespace ckpt::lib {

// Who this process trusts to run ckptd: root, itself, and the user that CKPTD_UID names.
struct TrustedUsers {
  uid_t own = 0;
  std::optional<uid_t> named;           // CKPTD_UID
  std::optional<uid_t> overflow_uid{};  // set in a user namespace: how users outside of it look
};
enum class Trust { kTrusted, kOutsideNamespace, kNotTrusted };
Trust trust_in(uid_t peer, const TrustedUsers& users);

// The users that this process trusts. kInvalidArgument: CKPTD_UID is no user id.
Result<TrustedUsers> trusted_users();

// Checks who listens at the other end of the connected socket (SO_PEERCRED). kPermissionDenied: a
// user that is not trusted; the message names the socket, the user and the remedy. A daemon outside
// of the own user namespace cannot be told from other users there: accepted, with one warning on
// stderr.
Status check_daemon(int socket, const std::string& path);

}  // namespace ckpt::lib
