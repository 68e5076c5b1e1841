// Query: the JSON documents that ckptctl prints, built from the catalog. Reads nothing else.
//
// Verbs, their arguments and documents: docs/reference/queries.md. An error is a document too,
// `{"error": "...", "detail": N}`, with the exit code of the error (2 bad usage, 3 not found, 4
// integrity). N is an ErrorDetail; there is none for kNone.
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
#include "ckptd/sources/sources.h"
#include "formats/selector.h"

namespace ckptd {

struct QueryAnswer {
  int exit_code = 0;
  std::string json;
};

struct QueryContext {
  const Catalog& catalog;
  // True for runs that the client may see; empty: all. Other runs do not exist for the client.
  std::function<bool(const RunInfo&)> may_read;
  // For `restore-plan`, with the client's uid. Null: no source has anything.
  const Sources* sources = nullptr;
  uid_t uid = 0;
  // Whether this user gets a session. Null: every user does.
  std::function<bool(uid_t)> may_connect = {};
  // Versions of a run that exist only in memory. Empty: there are none.
  std::function<MemoryVersions(ckpt::RunId)> memory_versions;
  // Damage found by scrub and verify.
  std::span<const ScrubDamage> damages = {};
  // Per answer; tests use less.
  size_t page_bytes_max = limits::kQueryPageBytesMax;
};

// True for verbs answered from the catalog alone (runs, log, alarms, show, schema, unit, experts,
// diff, restore-plan). The daemon answers the others: status, verify, scrub, tag, rebuild ...
bool is_catalog_verb(std::string_view verb);
// `args` is a JSON object, or empty for none.
QueryAnswer answer_query(const QueryContext& context, std::string_view verb, std::string_view args);
QueryAnswer error_answer(const ckpt::Error& error);

// Resolves a selector against the catalog.
struct Resolved {
  RunInfo run;
  ViewPoint point;
};
Result<Resolved> resolve_selector(const QueryContext& context, const ckpt::Selector& selector);

// Arguments and documents of verbs that the daemon executes.
struct VerifyTarget {
  std::vector<ckpt::RunId> runs;   // all runs that the client may read, or one
  std::optional<ViewPoint> point;  // only with one run
  bool journal = false;            // whole store: check the journal, too
};
Result<VerifyTarget> parse_verify_args(const QueryContext& context, std::string_view args);
// Returns all errors that fit, and counts the rest. Exit code 4: damage was found; 1: no damage was
// found, but some units could not be checked.
QueryAnswer verify_answer(const VerifyReport& report,
                          size_t page_bytes_max = limits::kQueryPageBytesMax);

struct ScrubArgs {
  bool start = false;             // start a pass; false: only show the state
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
// `begun`: the number of the pass that this query started. Exit code 4: damage is known; 1: the
// last pass could not check everything; 0 if a pass has only just started.
QueryAnswer scrub_answer(const QueryContext& context, const ScrubReport& report,
                         std::optional<uint64_t> begun);

struct TagChange {
  Resolved target;  // `point` only when a tag is set
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
  std::optional<ckpt::KeepRules> rules;  // to set; none: only show them
};
Result<KeepArgs> parse_keep_args(const QueryContext& context, std::string_view args);
QueryAnswer keep_answer(const QueryContext& context, const RunInfo& run);

struct GrantArgs {
  RunInfo run;
  std::optional<uint32_t> user;  // none: only show the grants
  ckpt::Rights rights;           // new rights; none: revokes all
};
Result<GrantArgs> parse_grant_args(const QueryContext& context, std::string_view args);
QueryAnswer grant_answer(const QueryContext& context, const RunInfo& run);

// The part of a plan that an answer shows.
struct PlanPage {
  struct From {
    uint64_t plan = 0;  // hash of the plan
    uint64_t row = 0;
  };
  bool paged = false;  // false: as much as fits, with the number of rows left out
  std::optional<From> from;
  size_t bytes = limits::kQueryPageBytesMax;
};

struct PruneArgs {
  RunInfo run;
  std::optional<ckpt::KeepRules> rules;  // none: the rules of the run
  bool force = false;                    // also remove commits that readers hold
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
// Also for `rm`. Never an error for a plan that was executed.
QueryAnswer prune_answer(const RunInfo& run, const PrunePlan& plan, bool dry_run,
                         const PlanPage& page);

}  // namespace ckptd
