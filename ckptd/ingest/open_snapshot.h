// OpenSnapshot: the state of one snapshot from its first begin to its commit or failure. Ingest
// owns these objects, routes events to them and turns their results into actions.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ckptd/ingest/fragment_ledger.h"
#include "ckptd/ingest/ingest.h"
#include "formats/base/outstanding.h"

namespace ckptd {

class OpenSnapshot {
 public:
  using Specs = std::shared_ptr<const std::vector<ckpt::UnitSpec>>;

  OpenSnapshot(const Ingest::Begin& first, Specs specs);

  // A failure of any of these fails the whole snapshot, except a repeated begin (kAlreadyExists).
  // Messages name the error, but not the snapshot.
  Status begin(const Ingest::Begin& begin, const std::vector<ckpt::UnitSpec>& units);
  // True if the slab stays in memory.
  Result<bool> sealed(ckpt::Rank rank, const std::vector<ckpt::ExtentFragment>& fragments);
  void written();

  const Specs& units() const { return specs_; }
  bool everyone_began() const { return members_.size() == group_size_; }
  bool staged() const;
  bool ready_to_commit() const { return staged() && writes_pending_.none(); }
  bool sealed_everything(ckpt::Rank rank) const;
  bool past_deadline(Time now) const { return now >= deadline_; }
  // The ranks that keep it from being staged, and why: "rank 2 has not begun it; rank 3 has not
  // sealed all of unit layers.0.attention".
  std::string waiting_for() const;

  // Set by Ingest when it has returned the action.
  bool staged_announced = false;
  bool committing = false;

  Ingest::CommitAction commit_action() const;
  // "run tiny step 1200: ..."
  ckpt::Error named(const ckpt::Error& error) const;

 private:
  struct Member {
    ckpt::base::Hash128 plan;
    std::vector<ckpt::UnitId> units;         // ascending
    std::vector<ckpt::UnitId> memory_units;  // of them, ascending
    FragmentLedger ledger;
    std::map<std::string, double> metrics;
    std::vector<ckpt::BlobSpec> blobs;
    FragmentLedger::Specs blob_specs;  // label and size of each, in the same order
    FragmentLedger blob_ledger;        // with positions in `blobs` as units

    bool complete() const { return ledger.complete() && blob_ledger.complete(); }
    // Label of what is not sealed yet; nullopt: nothing.
    std::optional<std::string> missing(const FragmentLedger::Specs& specs) const;
  };
  Status check_same_growth(const Ingest::Begin& begin,
                           const std::vector<ckpt::UnitSpec>& units) const;
  Status check_growth_written(const Ingest::Begin& begin, const std::vector<ckpt::UnitId>& units,
                              const std::vector<ckpt::UnitId>& memory_units) const;
  bool is_full(const Member& member) const;
  Status check_blobs(const Ingest::Begin& begin) const;
  static Status declare_blobs(const Ingest::Begin& begin, Member& member);
  Status seal(ckpt::Rank rank, Member& member, const ckpt::ExtentFragment& fragment) const;
  std::string label_of(const ckpt::ExtentFragment& fragment) const;
  Status take_expert_tokens(const Ingest::Begin& begin);
  Status check_agreement() const;
  Status check_plan() const;

  ckpt::SnapshotKey key_;
  std::string run_name_;
  uint32_t group_size_;
  Time deadline_;
  Specs specs_;
  ckpt::Rank first_rank_;  // the first member's, whose growth counts
  size_t known_units_;     // of the run; the others of specs_ are the growth
  std::vector<ckpt::UnitId> absent_;
  std::map<ckpt::Rank, Member> members_;
  ckpt::ExpertTokenCounts expert_tokens_;
  ckpt::Rank expert_tokens_from_ = 0;  // the rank that sent them
  size_t fragments_declared_ = 0;
  size_t fragments_sealed_ = 0;  // exceeds fragments_declared_ if ranges came in pieces
  size_t slabs_sealed_ = 0;
  ckpt::base::Outstanding writes_pending_;
};

// "rank 2", "ranks 0, 1, 3"
std::string format_ranks(const std::set<ckpt::Rank>& ranks);
// Prefixes the error with the name of the snapshot.
ckpt::Error name_snapshot(const std::string& run_name, ckpt::Step step, const ckpt::Error& error);

}  // namespace ckptd
