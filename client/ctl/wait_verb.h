// ckptctl wait. Private to this folder.
#pragma once

#include "client/ctl/verb_builder.h"

namespace ckptctl {

void add_wait(Builder& build);

}  // namespace ckptctl
