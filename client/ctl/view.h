// View: which version of each unit a selector means, and the schema to read its bytes by.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/ctl/link.h"
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
  std::string metadata_text;  // as the trainer gave it; empty: none
};
Result<Schema> load_schema(Link& link, const std::string& run);
// The member `units` of the daemon's answer to `schema`, and the way back. `what`: whose document
// it is, for messages.
Json units_json(const std::vector<ViewUnit>& units);
Result<std::vector<ViewUnit>> units_from_json(const char* what, const Json& document);

struct View {
  std::string run;
  uint32_t lineage = 0;
  uint64_t step = 0;
  bool complete = false;
  std::vector<std::string> missing;  // units without a version
  std::vector<std::string> stale;    // units whose version is older than the view
  // What it may look at: its lineage, then each ancestor up to the fork.
  struct Stretch {
    uint32_t lineage = 0;
    uint64_t newest_step = 0;
  };
  std::vector<Stretch> path;
  // Keeps it from being removed as long as one copy of this lives; null: nobody does.
  std::shared_ptr<ckpt::client::Hold> hold;
};
Result<View> load_view(Link& link, const std::string& target);
// For what is to be restored in several parts. The first only says which view it is: `units` of it
// are not loaded. Must not outlive the link.
Result<View> hold_view(Link& link, const std::string& target);
Result<View> load_held_view(Link& link, const std::string& target);
// "RUN~LINEAGE@STEP": this view, whatever `latest` or a tag come to mean.
std::string exact_target(const View& view);
// Between restores, and while files are written: its reader is still at work.
Status keep_holding(const View& view);
// The step of the newest commit in the log of the view's run that the view may look at and that is
// older than it and whole; nothing if there is none.
Result<std::optional<uint64_t>> older_step(const View& view, const Json& log);
// The same, asked for a few commits at a time.
Result<std::optional<uint64_t>> find_older_step(Link& link, const View& view);

// A piece of a unit that is wanted, and where it belongs in whatever is made of it.
struct WantedBytes {
  ckpt::UnitId unit = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t destination = 0;  // offset in the output file; moved on when a piece is cut
  size_t tag = 0;            // index of the input file
};
// Cut into batches of at most kReadBytes and as many pieces as one restore takes, in order; a long
// piece goes on in the next batch, with its offsets moved on, and is never cut inside an element.
std::vector<std::vector<WantedBytes>> in_batches(const std::vector<WantedBytes>& wanted);
// Reads one batch, and goes on holding the view; its pieces lie in `buffer` one after another.
Status read_batch(Link& link, const View& view, const std::vector<WantedBytes>& batch,
                  ckpt::MutableByteView buffer);

}  // namespace ckptctl
