// Access: what a session may do with a run. Pure.
#pragma once

#include <initializer_list>

#include "ckptd/catalog/catalog.h"
#include "ckptd/sessions/session.h"
#include "formats/base/result.h"

namespace ckptd {

// True for the owner, root, and the user that ckptd runs as.
bool may_use(const Session& session, uid_t owner);
// True for these, and for users with a grant of the right.
bool may(const Session& session, const RunInfo& run, ckpt::Right right);
// Passes a user with at least one of the rights. kPermissionDenied names the run, its owner, the
// missing rights, and the command that grants the first.
ckpt::Status check_may(const Session& session, const RunInfo& run,
                       std::initializer_list<ckpt::Right> any_of);
ckpt::Status check_owner(const Session& session, const RunInfo& run);
// For the run that the session has registered.
ckpt::Status may_train(const Session& session, const Catalog& catalog);
// False also if the catalog has no such run.
bool may_read(const Session& session, const std::string& run, const Catalog& catalog);

}  // namespace ckptd
