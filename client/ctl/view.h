// View: the version of each unit that a selector selects, and the schema to read the bytes.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "client/ctl/link.h"
#include "client/ctl/wanted_bytes.h"
#include "formats/unit.h"

namespace ckptctl {

struct ViewUnit {
  ckpt::UnitId id = 0;
  std::string name;
  uint64_t bytes = 0;
  std::vector<ckpt::TensorSpec> tensors;
  std::optional<uint32_t> layer;
  std::optional<uint32_t> expert;
  std::string part;
};

// The units of a run, by id, and its metadata.
struct Schema {
  std::vector<ViewUnit> units;
  Json metadata;
  std::string metadata_text;  // the trainer's text; empty: none
};
Result<Schema> load_schema(Link& link, const std::string& run);
// Converts units to and from the member `units` of the daemon's answer to `schema`. `what` names
// the document in messages.
Json units_json(const std::vector<ViewUnit>& units);
Result<std::vector<ViewUnit>> units_from_json(const char* what, const Json& document);

struct View {
  std::string run;
  uint32_t lineage = 0;
  uint64_t step = 0;
  bool complete = false;
  std::string lost;  // how damage took one of the missing units; empty: no damage is known
  std::set<std::string, std::less<>> units;  // names of those that belong to it
  std::vector<std::string> missing;          // units without a version
  std::vector<std::string> stale;            // units whose version is older than the view
  uint64_t blobs = 0;                        // number of blobs of its commit
  // Lineages visible from this view: its own, then each ancestor up to the fork.
  struct Stretch {
    uint32_t lineage = 0;
    uint64_t newest_step = 0;
  };
  std::vector<Stretch> path;
  // Keeps the view from being removed as long as one copy of this exists; null: no hold.
  std::shared_ptr<ckpt::client::Hold> hold;
};
// Leaves only the units that belong to the view. A run that has grown has more.
void keep_units_of(const View& view, Schema& schema);
Result<View> load_view(Link& link, const std::string& target);
// For views that are restored in several parts. hold_view only resolves and holds the view: its
// `units` are not loaded. The view must not outlive the link.
Result<View> hold_view(Link& link, const std::string& target);
Result<View> load_held_view(Link& link, const std::string& target);
// "RUN~LINEAGE@STEP": always this view, even if `latest` or a tag moves.
std::string exact_target(const View& view);
// Renews the hold, between restores and while files are written.
Status keep_holding(const View& view);
// Step of the newest commit in the log of the view's run that is visible from the view, older than
// the view, and whole; nothing if there is none.
Result<std::optional<uint64_t>> older_step(const View& view, const Json& log);
// Same, reading the log a few commits at a time.
Result<std::optional<uint64_t>> find_older_step(Link& link, const View& view);

// Splits pieces into batches, in order: at most kReadBytes and as many pieces as one restore takes.
// A piece of more than kReadBytes continues in the next batch, also in the middle of a run;
// elements are never cut. Others are not cut: ckptd reads and checks the fragment on both sides of
// a cut.
std::vector<std::vector<WantedBytes>> in_batches(const std::vector<WantedBytes>& wanted);
// Reads one batch and renews the hold; the pieces lie in `buffer` one after another.
Status read_batch(Link& link, const View& view, const std::vector<WantedBytes>& batch,
                  ckpt::MutableByteView buffer);

}  // namespace ckptctl
