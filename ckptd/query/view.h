// Private to this folder: a view as documents tell of it, what each unit is as of a step.
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
  ViewPoint commit;  // that it came with
  uint32_t crc32c = 0;
  bool memory_only = false;
};

struct View {
  Resolved at;
  std::shared_ptr<const std::vector<ckpt::UnitSpec>> specs;
  std::vector<std::optional<Seen>> units;  // by id; nullopt: the view lacks it
  uint64_t sequence = 0;                   // of its commit's record
  std::string damaged;                     // why that is; empty: it is not
};

// A page says which view the answer is of, by kViewNumbers at the front of its position: what a
// selector means may be another commit by the time of the next page.
inline constexpr size_t kViewNumbers = 5;
Position view_position(const View& view);

// Reads the view of a position or, without one, that which `resolve` finds for the selector in the
// argument `name`.
using Resolve = Result<Resolved> (*)(const QueryContext&, const ckpt::Selector&);
Result<View> read_view(const QueryContext& context, const QueryArgs& args, const std::string& name,
                       std::span<const uint64_t> position, Resolve resolve = resolve_selector);

Json point_json(const View& view);
std::optional<ckpt::Step> step_of(const std::optional<Seen>& seen);

}  // namespace ckptd
