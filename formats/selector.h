// Selectors: names of a run, a commit or a view, as users type them. The only parser.
//
//   RUN                          the run; for a view, its newest complete one
//   RUN@STEP                     the commit of this step in the current lineage, or in an ancestor
//                                up to the fork
//   RUN@latest                   the newest complete view of the current lineage
//   RUN@TAG                      the commit that carries the tag
//   RUN~L, RUN~L@STEP, RUN~L@latest   the same in lineage L
//
// If the run is known, its name may be omitted: STEP, latest, TAG, ~L@STEP, ~L@latest.
#pragma once

#include <string>
#include <string_view>

#include "formats/base/ids.h"
#include "formats/base/result.h"

namespace ckpt {

struct Selector {
  enum class Kind : uint8_t { kRun, kStep, kLatest, kTag };
  std::string run;
  LineageId lineage = 0;  // 0: the current one
  Kind kind = Kind::kRun;
  Step step = 0;    // with kStep
  std::string tag;  // with kTag
  bool operator==(const Selector&) const = default;
};

// kInvalidArgument names the text and its fault.
Result<Selector> parse_selector(std::string_view text);
// The name of a commit of a run that is known: as above with or without the run's name. A lineage
// alone, ~L, means its newest complete view. The answer is never of kind kRun.
Result<Selector> parse_commit_name(std::string_view text, std::string_view run);
std::string to_string(const Selector& selector);
// RUN~LINEAGE@STEP: names this commit regardless of the current lineage.
std::string commit_name(std::string_view run, LineageId lineage, Step step);

// Checks that a tag is a valid name, and that no selector reads it as something else ("latest",
// "120").
Status validate_tag(std::string_view tag);

}  // namespace ckpt
