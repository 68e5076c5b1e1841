// Private to this folder: the blobs of a view's own commit, in documents.
#pragma once

#include "ckptd/query/view.h"

namespace ckptd {

// One object per blob, in the order of ranks. Known damage is named.
Json blobs_json(const QueryContext& context, const View& view);

// Blobs that only one of the views has, or whose bytes differ; matched by name and rank.
Json blob_changes_json(const QueryContext& context, const View& from, const View& to);

}  // namespace ckptd
