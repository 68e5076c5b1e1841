// blobs: lists the blobs of a commit, and writes them into a folder.
#pragma once

#include "client/ctl/verb_builder.h"

namespace ckptctl {

void add_blobs(Builder& build);

// {run, lineage, step, blobs:[{blob, rank, global, bytes, crc32c}], out, files}. `out` and `files`
// only after a write.
std::string print_blobs(const Json& document);
// Tables below those of `show` and `diff`, after an empty line; empty without blobs.
std::string blob_table(const Json& blobs);
std::string blob_change_table(const Json& changes);

}  // namespace ckptctl
