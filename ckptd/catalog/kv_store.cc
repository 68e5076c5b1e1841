#include "ckptd/catalog/kv_store.h"

#include "formats/base/assert.h"

namespace ckptd {

ckpt::Result<std::string> KvStore::set_aside(std::string_view name) {
  CKPT_TRY(clear());
  return std::string(name);
}

std::string_view family_name(Family family) {
  switch (family) {
    case Family::kMeta:
      return "meta";
    case Family::kRuns:
      return "runs";
    case Family::kUnits:
      return "units";
    case Family::kLineages:
      return "lineages";
    case Family::kCommits:
      return "commits";
    case Family::kVersions:
      return "versions";
    case Family::kTags:
      return "tags";
    case Family::kSegments:
      return "segments";
  }
  CKPT_ASSERT_MSG(false, "unknown family");
}

}  // namespace ckptd
