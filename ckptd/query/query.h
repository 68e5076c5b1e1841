// Query: the JSON documents that ckptctl prints, built from the catalog. Reads nothing else.
//
// Verbs, their arguments and documents: docs/reference/queries.md. An error is a document too,
// `{"error": "..."}`, with the exit code of the error (2 bad usage, 3 not found, 4 integrity).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ckptd/catalog/catalog.h"
#include "ckptd/limits.h"
#include "ckptd/restore/memory_view.h"
#include "ckptd/restore/plan.h"
#include "ckptd/restore/verify.h"
#include "ckptd/retention/prune.h"
#include "formats/selector.h"

namespace ckptd {

struct QueryAnswer {
  int exit_code = 0;
  std::string json;
};

struct QueryContext {
  const Catalog& catalog;
  // Which runs the asker may see; empty: all. A run that may not be seen does not exist.
  std::function<bool(const RunInfo&)> may_read;
  // For `restore-plan`. Empty: nothing is in memory.
  std::function<bool(const ckpt::SnapshotKey&, ckpt::UnitId, const FragmentPlace&)> in_memory;
  // Those of a run that are in memory only. Empty: there are none.
  std::function<MemoryVersions(ckpt::RunId)> memory_versions;
  // Damage that scrub and verify have found.
  std::span<const ScrubDamage> damages = {};
  // Speeds seen lately; 0: not known, then no seconds are given.
  double memory_bytes_per_second = 0;
  double segment_bytes_per_second = 0;
  // Of one answer; tests take less.
  size_t page_bytes_max = limits::kQueryPageBytesMax;
};

// Is this verb answered from the catalog alone? (runs, log, alarms, show, schema, unit, experts,
// diff, restore-plan; the daemon answers the others: status, verify, scrub, tag, rebuild ...)
bool is_catalog_verb(std::string_view verb);
// `args` is a JSON object, or empty for none.
QueryAnswer answer_query(const QueryContext& context, std::string_view verb, std::string_view args);
QueryAnswer error_answer(const ckpt::Error& error);

// A selector against the catalog.
struct Resolved {
  RunInfo run;
  ViewPoint point;
};
Result<Resolved> resolve_selector(const QueryContext& context, const ckpt::Selector& selector);

// Arguments and documents of verbs that the daemon carries out.
struct VerifyTarget {
  std::vector<ckpt::RunId> runs;   // all that the asker may read, or one
  std::optional<ViewPoint> point;  // only with one
  bool journal = false;            // the whole store: the journal, too
};
Result<VerifyTarget> parse_verify_args(const QueryContext& context, std::string_view args);
// As many errors as there is room for; those that are left out are counted. Exit code 4: something
// is damaged; 1: nothing is as far as could be checked, and something could not be.
QueryAnswer verify_answer(const VerifyReport& report,
                          size_t page_bytes_max = limits::kQueryPageBytesMax);

struct ScrubArgs {
  bool start = false;             // a pass; else only the question how it stands
  uint64_t bytes_per_second = 0;  // 0: the configured rate
};
Result<ScrubArgs> parse_scrub_args(std::string_view args);
struct ScrubReport {
  std::string_view doing;  // "off", "idle", "reading", "yielding"
  uint64_t bytes_per_second = 0;
  std::chrono::milliseconds interval{0};
  size_t commits_waiting = 0;
  ScrubState state;
};
// `begun`: the number of the pass that was started by this question. Exit code 4: damage is known;
// 1: the last pass could not check everything; 0 where a pass has only just begun to look.
QueryAnswer scrub_answer(const QueryContext& context, const ScrubReport& report,
                         std::optional<uint64_t> begun);

struct TagChange {
  Resolved target;  // `point` only where a tag is set
  std::string tag;
  bool remove = false;
};
Result<TagChange> parse_tag_args(const QueryContext& context, std::string_view args);

struct PinChange {
  Resolved target;
  bool remove = false;
};
Result<PinChange> parse_pin_args(const QueryContext& context, std::string_view args);

struct KeepArgs {
  RunInfo run;
  std::optional<ckpt::KeepRules> rules;  // to set; none: only to show
};
Result<KeepArgs> parse_keep_args(const QueryContext& context, std::string_view args);
QueryAnswer keep_answer(const QueryContext& context, const RunInfo& run);

struct GrantArgs {
  RunInfo run;
  std::optional<uint32_t> user;  // none: only to show
  ckpt::Rights rights;           // from now on; none: what was granted is taken back
};
Result<GrantArgs> parse_grant_args(const QueryContext& context, std::string_view args);
QueryAnswer grant_answer(const QueryContext& context, const RunInfo& run);

// How much of a plan is answered.
struct PlanPage {
  struct From {
    uint64_t plan = 0;  // which it was
    uint64_t row = 0;
  };
  bool paged = false;  // else what there is room for, and how much there is no room for
  std::optional<From> from;
  size_t bytes = limits::kQueryPageBytesMax;
};

struct PruneArgs {
  RunInfo run;
  std::optional<ckpt::KeepRules> rules;  // none: those of the run
  bool force = false;                    // also what readers hold
  bool dry_run = false;
  PlanPage page;
};
Result<PruneArgs> parse_prune_args(const QueryContext& context, std::string_view args);

struct RemoveArgs {
  RunInfo run;
  std::optional<ViewPoint> point;  // none: the whole run
  bool force = false;
  bool dry_run = false;
  PlanPage page;
};
Result<RemoveArgs> parse_remove_args(const QueryContext& context, std::string_view args);
// Of `rm`, too. Never an error for a plan that was carried out.
QueryAnswer prune_answer(const RunInfo& run, const PrunePlan& plan, bool dry_run,
                         const PlanPage& page);

}  // namespace ckptd
