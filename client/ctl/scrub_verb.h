// ckptctl scrub: a pass over the whole store, and the findings of earlier passes. Private to this
// folder.
#pragma once

namespace ckptctl {

class Builder;
void add_scrub(Builder& build);

}  // namespace ckptctl
