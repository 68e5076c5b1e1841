// scrub: a pass over the whole store, and what earlier ones found. Private to this folder.
#pragma once

namespace ckptctl {

class Builder;
void add_scrub(Builder& build);

}  // namespace ckptctl
