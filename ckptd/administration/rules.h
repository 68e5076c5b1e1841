// Rules of retention and grants of a run: `keep` and `grant`.
#pragma once

#include "ckptd/administration/change_context.h"

namespace ckptd {

// Without rules in its arguments: answers with the present ones.
void change_rules(const ChangeContext& context, const Session& session,
                  const RequestedChange& change);
// Without a user in its arguments: answers with the present grants. A revoked grant does not affect
// work in progress: it only prevents the session from joining again.
void change_grant(const ChangeContext& context, const Session& session,
                  const RequestedChange& change);

}  // namespace ckptd
