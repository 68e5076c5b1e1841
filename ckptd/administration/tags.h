// Tags and pins of commits: `tag` and `pin`.
#pragma once

#include "ckptd/administration/change_context.h"

namespace ckptd {

void change_tag(const ChangeContext& context, const Session& session,
                const RequestedChange& change);
void change_pin(const ChangeContext& context, const Session& session,
                const RequestedChange& change);

}  // namespace ckptd
