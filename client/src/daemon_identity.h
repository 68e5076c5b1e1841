// The user that a daemon runs as. libckpt gives its memory only to a daemon of a trusted user, and
// believes only such a daemon. A path is no identity: any user who can write to its folder can
// listen there.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "formats/base/result.h"

namespace ckpt::lib {

// Users trusted to run ckptd: root, this process's user, and the user in CKPTD_UID.
struct TrustedUsers {
  uid_t own = 0;
  std::optional<uid_t> named;           // CKPTD_UID
  std::optional<uid_t> overflow_uid{};  // in a user namespace: uid of outside users
};
enum class Trust { kTrusted, kOutsideNamespace, kNotTrusted };
Trust trust_in(uid_t peer, const TrustedUsers& users);

// The users that this process trusts. kInvalidArgument: CKPTD_UID is no user id.
Result<TrustedUsers> trusted_users();

// Checks the user at the other end of the connected socket (SO_PEERCRED). kPermissionDenied: the
// user is not trusted; the message names the socket, the user and the remedy. A daemon outside this
// user namespace looks like any other user there: it is accepted, with one warning on stderr.
Status check_daemon(int socket, const std::string& path);

}  // namespace ckpt::lib
