// Keys of the catalog. Numbers are big-endian, so that the order of bytes is the order of numbers.
//
//   meta      "applied" | "format" | "store"
//             "scrub"                            values.ScrubState, if there is one
//             "recoded"                          of an older store; not read
//             "opened" sequence                  u64: time of a startup of ckptd, by its record
//   runs      run                                created: Record(RunCreated)
//             run 'g' user                       Record(Granted), one per user with rights
//             run 'k'                            Record(RulesSet)
//             run 's'                            values.RunState
//   units     run first-unit-id                  Record(UnitsRegistered), one per registration
//   lineages  run lineage                        Record(LineageOpened)
//   commits   run 'c' lineage step               values.Commit: every commit ever made
//             run 's' sequence                   lineage step: index of commits in journal order
//             run 'l' lineage step               (empty): commits that views may use
//             run 'f' lineage step               u32: full commits of 'l'; they hold units [0, n)
//             run 't' lineage step               values.TokenCounts, of commits that have counts
//             run 'u' lineage step               values.UnitSums, of commits in 'l'
//             run 'a' sequence                   Record(SnapshotRefused)
//             run 'p' lineage step               (empty): pinned
//             run 'd' sequence                   values.Ranges: space that the record made dead
//             run 'x' segment offset lineage step
//                                                values.Ranges: the part of an extent that a
//                                                commit holds if it does not hold all of it
//   versions  run unit lineage step              values.Version
//   tags      run tag                            Record(Tagged)
//   segments  segment                            u64: number of extents with live data
//
// "Newest version of a unit in a lineage at or before a step" is one reverse seek.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "formats/base/ids.h"

namespace ckptd::keys {

inline constexpr std::string_view kApplied = "applied";
inline constexpr std::string_view kFormat = "format";
inline constexpr std::string_view kStore = "store";
inline constexpr std::string_view kScrub = "scrub";
inline constexpr std::string_view kOpened = "opened";

enum class CommitIndex : char {
  kCommit = 'c',
  kSequence = 's',
  kLive = 'l',
  kFull = 'f',
  kTokens = 't',
  kSums = 'u',
  kRefused = 'a',
  kPinned = 'p',
  kDead = 'd',
  kHolding = 'x'
};
inline constexpr CommitIndex kCommitIndexes[] = {
    CommitIndex::kCommit, CommitIndex::kSequence, CommitIndex::kLive,    CommitIndex::kFull,
    CommitIndex::kTokens, CommitIndex::kSums,     CommitIndex::kRefused, CommitIndex::kPinned,
    CommitIndex::kDead,   CommitIndex::kHolding};

std::string number(uint32_t value);
std::string number(uint64_t value);
// Big-endian number at the given position; nullopt if the text is too short.
std::optional<uint32_t> u32_at(std::string_view text, size_t position);
std::optional<uint64_t> u64_at(std::string_view text, size_t position);

std::string opened(uint64_t sequence);

std::string run(ckpt::RunId run);
std::string run_grant(ckpt::RunId run, uint32_t uid);
std::string run_rules(ckpt::RunId run);
std::string run_state(ckpt::RunId run);
std::string units(ckpt::RunId run, ckpt::UnitId first);
std::string lineage(ckpt::RunId run, ckpt::LineageId lineage);
std::string tag(ckpt::RunId run, std::string_view tag);

std::string commits(ckpt::RunId run, CommitIndex index);
std::string commits(ckpt::RunId run, CommitIndex index, ckpt::LineageId lineage);
std::string commit(ckpt::RunId run, CommitIndex index, ckpt::LineageId lineage, ckpt::Step step);
std::string commit_sequence(ckpt::RunId run, uint64_t sequence);
std::string refused(ckpt::RunId run, uint64_t sequence);
std::string dead(ckpt::RunId run, uint64_t sequence);
std::string holding(ckpt::RunId run, ckpt::SegmentId segment, uint64_t offset);
std::string holding(ckpt::RunId run, ckpt::SegmentId segment, uint64_t offset,
                    ckpt::LineageId lineage, ckpt::Step step);
std::string segment(ckpt::SegmentId segment);

std::string versions(ckpt::RunId run, ckpt::UnitId unit);
inline constexpr size_t kUnitOfVersionBytes = sizeof(ckpt::RunId) + sizeof(ckpt::UnitId);
std::string versions(ckpt::RunId run, ckpt::UnitId unit, ckpt::LineageId lineage);
std::string version(ckpt::RunId run, ckpt::UnitId unit, ckpt::LineageId lineage, ckpt::Step step);

// The (lineage, step) at the end of a key or value.
struct LineageStep {
  ckpt::LineageId lineage = 0;
  ckpt::Step step = 0;
};
std::string lineage_step(ckpt::LineageId lineage, ckpt::Step step);
std::optional<LineageStep> lineage_step_at_end(std::string_view text);

}  // namespace ckptd::keys
