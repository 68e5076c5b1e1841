// Private to this folder: a view as documents show it, with each unit's version as of a step.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckptd/query/documents.h"

namespace ckptd {

// A unit as of the view: its version, without the places of its bytes.
struct Seen {
  ViewPoint commit;  // the commit of the version
  uint32_t crc32c = 0;
  bool memory_only = false;
};

struct View {
  Resolved at;
  std::shared_ptr<const std::vector<ckpt::UnitSpec>> specs;
  std::vector<std::optional<Seen>> units;  // by id; nullopt: the view lacks it
  std::vector<bool> absent;                // by id: a grown unit that does not belong to the view
  uint64_t sequence = 0;                   // of the commit's record
  std::string damaged;                     // why the commit is damaged; empty: it is not
};

// A page names its view by kViewNumbers numbers at the front of its position, because a selector
// may find another commit by the time of the next page.
inline constexpr size_t kViewNumbers = 5;
Position view_position(const View& view);

// Reads the view of a position. Without a position, reads the view that `resolve` finds for the
// selector in the argument `name`.
using Resolve = Result<Resolved> (*)(const QueryContext&, const ckpt::Selector&);
Result<View> read_view(const QueryContext& context, const QueryArgs& args, const std::string& name,
                       std::span<const uint64_t> position, Resolve resolve = resolve_selector);

Json point_json(const View& view);
std::optional<ckpt::Step> step_of(const std::optional<Seen>& seen);

}  // namespace ckptd
