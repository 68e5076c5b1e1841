// ckptctl log. Private to this folder.
#pragma once

#include "client/ctl/verb_builder.h"

namespace ckptctl {

void add_log(Builder& build);

}  // namespace ckptctl
