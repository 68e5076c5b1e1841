#include "ckptd/administration/tags.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "ckptd/sessions/access.h"
#include "formats/base/json_dump.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::Status;

void change_tag(const ChangeContext& context, const Session& session,
                const RequestedChange& change) {
  const Catalog& catalog = context.history.catalog();
  std::optional<ViewPoint> moved_from;  // the commit that the tag named until now
  const auto tag = context.history.read([&] {
    auto parsed = parse_tag_args(context.query_context(session), change.args);
    if (parsed.ok()) {
      const auto tags = catalog.tags(parsed->target.run.id);
      if (const auto named = tags.find(parsed->tag); named != tags.end()) {
        moved_from = named->second;
      }
    }
    return parsed;
  });
  if (!tag.ok()) return context.refuse(change, tag.error());
  const RunInfo& run = tag->target.run;
  // Users who train a run tag its results; users who prune a run tag what is to stay.
  const Status allowed = check_may(session, run, {ckpt::Right::kPrune, ckpt::Right::kCommit});
  if (!allowed.ok()) return context.refuse(change, allowed.error());
  nlohmann::json document = {{"run", run.name}, {"tag", tag->tag}};
  std::vector<fb::RecordT> records;
  if (tag->remove) {
    fb::UntaggedT untagged;
    untagged.run = run.id;
    untagged.tag = tag->tag;
    untagged.time_ns = context.turn.wall_clock_ns();
    records.push_back(make_record(std::move(untagged)));
    document["removed"] = true;
  } else {
    fb::TaggedT tagged;
    tagged.tag = tag->tag;
    if (moved_from && *moved_from != tag->target.point) {
      document["moved_from"] = {{"step", moved_from->step}, {"lineage", moved_from->lineage}};
    }
    document["step"] = tag->target.point.step;
    document["lineage"] = tag->target.point.lineage;
    records.push_back(
        record_at(run, tag->target.point, context.turn.wall_clock_ns(), std::move(tagged)));
  }
  context.queue.record(change, std::move(records), [json = ckpt::base::dump_json(document)] {
    return QueryAnswer{0, json};
  });
}

void change_pin(const ChangeContext& context, const Session& session,
                const RequestedChange& change) {
  const auto pin = context.history.read(
      [&] { return parse_pin_args(context.query_context(session), change.args); });
  if (!pin.ok()) return context.refuse(change, pin.error());
  const auto& [run, point] = pin->target;
  const Status allowed = check_may(session, run, {ckpt::Right::kPrune});
  if (!allowed.ok()) return context.refuse(change, allowed.error());
  const nlohmann::json document = {{"run", run.name},
                                   {"step", point.step},
                                   {"lineage", point.lineage},
                                   {"pinned", !pin->remove}};
  const uint64_t now_ns = context.turn.wall_clock_ns();
  std::vector<fb::RecordT> records;
  records.push_back(pin->remove ? record_at<fb::UnpinnedT>(run, point, now_ns)
                                : record_at<fb::PinnedT>(run, point, now_ns));
  context.queue.record(change, std::move(records), [json = ckpt::base::dump_json(document)] {
    return QueryAnswer{0, json};
  });
}

}  // namespace ckptd
