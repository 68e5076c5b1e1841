#include "ckptd/runs/replace_run.h"

#include <spdlog/spdlog.h>

#include "ckptd/history/make_record.h"
#include "ckptd/observe/log_event.h"

namespace ckptd {

using ckpt::make_error;
namespace fb = ckpt::fb;

bool never_committed(const RunInfo& run, uint32_t uid) {
  return run.commits == 0 && run.uid == uid;
}

bool differs(const RunInfo& run, std::string_view metadata) {
  return !metadata.empty() && run.metadata != metadata;
}

Status still_in_use(const Status& same, const Status& unused) {
  if (same.ok()) return same;
  const bool in_use = unused.error().code == ckpt::ErrorCode::kFailedPrecondition;
  return with_detail(
      make_error(same.error().code, "{}; without a commit it would be replaced, but {}",
                 same.error().message, unused.error().message),
      in_use ? ckpt::ErrorDetail::kRunInUse : ckpt::ErrorDetail::kNone);
}

fb::RecordT removal_of_replaced(const RunInfo& run, uint64_t time_ns) {
  fb::RunRemovedT removed;
  removed.run = run.id;
  removed.time_ns = time_ns;
  removed.reason = "replaced: it has no commit, and its owner registered other units";
  log_event(spdlog::level::info, "run_removed",
            {{"run", run.name},
             {"commits", run.commits},
             {"bytes", run.bytes},
             {"reason", removed.reason}},
            "run {}: {}", run.name, removed.reason);
  return make_record(std::move(removed));
}

std::vector<fb::RecordT> kept_settings(const RunInfo& from, const ckpt::KeepRules& rules,
                                       ckpt::RunId to, uint64_t time_ns) {
  std::vector<fb::RecordT> records;
  if (rules != ckpt::KeepRules()) {
    fb::RulesSetT set = ckpt::to_fb(rules);
    set.run = to;
    set.time_ns = time_ns;
    records.push_back(make_record(std::move(set)));
  }
  for (const auto& [uid, rights] : from.grants) {
    fb::GrantedT granted = ckpt::to_fb(uid, rights);
    granted.run = to;
    granted.time_ns = time_ns;
    records.push_back(make_record(std::move(granted)));
  }
  return records;
}

}  // namespace ckptd
