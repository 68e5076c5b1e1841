// ckptctl grant: permissions of other users to read, train or prune a run. Private to this folder.
#pragma once

#include "client/ctl/verb_builder.h"

namespace ckptctl {

void add_grant(Builder& build);

}  // namespace ckptctl
