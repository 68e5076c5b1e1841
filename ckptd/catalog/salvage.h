// Salvage: the facts that an index has and its damaged journal has lost.
//
// The index takes a record only after the journal has it durably. An index that is ahead of its
// journal therefore proves that the journal lost durable records. Most of these records can be
// written again from the index. The index lacks: members of the last epochs (unless the journal
// still has them) and everything about earlier epochs; the size of a commit that was deleted as a
// whole; when lineages were opened; when ckptd was started and stopped.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ckptd/catalog/catalog.h"

namespace ckptd {

struct Salvage {
  struct Run {
    RunInfo info;
    std::shared_ptr<const std::vector<ckpt::UnitSpec>> units;
    ckpt::UnitId base_units = 0;  // the first of them; the others are grown
    std::vector<Lineage> lineages;
    std::map<std::string, ViewPoint> tags;
    ckpt::KeepRules rules;
    std::vector<ViewPoint> pins;
  };
  struct Commit {
    CommitInfo info;
    ckpt::fb::CommittedT record;
  };
  std::vector<RunInfo> removed;  // removed runs
  std::vector<Run> runs;         // all other runs
  // Commits that the journal lacks, in order. A deleted commit has only what its deletion left.
  std::vector<Commit> commits;
  std::vector<Commit> moved;      // commits in the journal whose bytes have moved since
  std::vector<CommitInfo> ended;  // all damaged or deleted commits
  std::vector<Refusal> refused;   // refusals that the journal lacks, in their order
  // The newest readable epoch record of each run, from anywhere in the journal. Set by the caller.
  std::map<ckpt::RunId, ckpt::fb::EpochOpenedT> epochs;
};

// Reads an index that is ahead of a journal that ends with record `last_sequence`. Fails if the
// index cannot be read.
Result<Salvage> take_salvage(const Catalog& ahead, uint64_t last_sequence);

// The records that bring `behind`, the fold of that journal, up to the state of the salvaged index,
// in the order in which they can be folded in. Commits are not among them: the caller checks
// whether their bytes still exist.
std::vector<ckpt::fb::RecordT> missing_before_commits(const Salvage& salvage, const Catalog& behind,
                                                      uint64_t time_ns);
// The same for records that refer to commits. Call this after the commits were folded in.
std::vector<ckpt::fb::RecordT> missing_after_commits(const Salvage& salvage, const Catalog& behind,
                                                     uint64_t time_ns);
// The record that moves the bytes of a commit. Call this after the commits were folded in. nullopt:
// the bytes have not moved.
std::optional<ckpt::fb::RecordT> missing_move(const Salvage::Commit& moved, const Catalog& behind,
                                              uint64_t time_ns);

}  // namespace ckptd
