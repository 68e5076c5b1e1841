// Salvage: what an index knows that the journal does not say any more.
//
// The index takes a record only after the journal has it durably. One that is ahead of its journal
// therefore proves that durable bytes of the journal were lost, and holds what they said: enough of
// it to write the records again. What it does not hold: who was in the last epochs (unless the
// journal still says so) and all about earlier ones; of a commit that was deleted as a whole its
// plan and its size; when lineages were opened; when it was started and stopped.
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
    std::vector<Lineage> lineages;
    std::map<std::string, ViewPoint> tags;
    ckpt::KeepRules rules;
    std::vector<ViewPoint> pins;
  };
  struct Commit {
    CommitInfo info;
    ckpt::fb::CommittedT record;
  };
  std::vector<RunInfo> removed;  // runs that are gone
  std::vector<Run> runs;         // all others
  // That the journal lacks, in their order. Of deleted ones what is left of them, if anything.
  std::vector<Commit> commits;
  std::vector<Commit> moved;      // that the journal has, with their bytes elsewhere
  std::vector<CommitInfo> ended;  // all that are damaged or deleted
  std::vector<Refusal> refused;   // that the journal lacks, in their order
  // The last one of each run that can be read anywhere in the journal: the caller's to say.
  std::map<ckpt::RunId, ckpt::fb::EpochOpenedT> epochs;
};

// From an index that is ahead of a journal that ends with record `last_sequence`. The error of one
// that cannot be read.
Result<Salvage> take_salvage(const Catalog& ahead, uint64_t last_sequence);

// The records that bring `behind`, the fold of that journal, to where the salvaged index was, in
// the order in which they can be folded in. Commits are not among them: whether their bytes are
// still there is the caller's to find out.
std::vector<ckpt::fb::RecordT> missing_before_commits(const Salvage& salvage, const Catalog& behind,
                                                      uint64_t time_ns);
// The same for what refers to commits: to be made once those were folded in.
std::vector<ckpt::fb::RecordT> missing_after_commits(const Salvage& salvage, const Catalog& behind,
                                                     uint64_t time_ns);
// The record that moves the bytes of a commit, once those were folded in; nullopt: they are where
// they were.
std::optional<ckpt::fb::RecordT> missing_move(const Salvage::Commit& moved, const Catalog& behind,
                                              uint64_t time_ns);

}  // namespace ckptd
