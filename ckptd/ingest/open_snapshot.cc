#include "ckptd/ingest/open_snapshot.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "ckptd/limits.h"

namespace ckptd {

using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Rank;

std::string format_ranks(const std::set<Rank>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

Error name_snapshot(const std::string& run_name, ckpt::Step step, const Error& error) {
  return reworded(error, fmt::format("run {} step {}: {}", run_name, step, error.message));
}

namespace {

// Both lists are ascending, `units` without duplicates.
Status check_memory_units(Rank rank, const std::vector<ckpt::UnitId>& units,
                          const std::vector<ckpt::UnitId>& memory_units) {
  const bool twice =
      std::adjacent_find(memory_units.begin(), memory_units.end()) != memory_units.end();
  if (twice ||
      !std::includes(units.begin(), units.end(), memory_units.begin(), memory_units.end())) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rank {}: memory_units names a unit twice, or one that the snapshot does not "
                      "hold",
                      rank);
  }
  if (!memory_units.empty() && memory_units.size() == units.size()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rank {}: all units are to stay in memory, none would be durable", rank);
  }
  return {};
}

// All fragments go into one commit record.
Status check_fragments(size_t count) {
  if (count <= limits::kFragmentsPerSnapshotMax) return {};
  return make_error(ErrorCode::kResourceExhausted, "{} fragments of all ranks, the most is {}",
                    count, limits::kFragmentsPerSnapshotMax);
}

}  // namespace

OpenSnapshot::OpenSnapshot(const Ingest::Begin& first, Specs specs)
    : key_(first.snapshot),
      run_name_(first.run_name),
      group_size_(first.group_size),
      deadline_(first.deadline),
      specs_(std::move(specs)),
      first_rank_(first.rank),
      known_units_(std::min(first.known_units, specs_->size())),
      absent_(first.absent) {}

Status OpenSnapshot::begin(const Ingest::Begin& begin,
                           const std::vector<ckpt::UnitSpec>& all_units) {
  if (begin.group_size != group_size_ || begin.rank >= group_size_) {
    return make_error(ErrorCode::kInvalidArgument, "rank {} of {} began it, but the group has {}",
                      begin.rank, begin.group_size, group_size_);
  }
  if (members_.contains(begin.rank)) {
    return make_error(ErrorCode::kAlreadyExists, "rank {} has begun it already", begin.rank);
  }
  CKPT_TRY(check_same_growth(begin, all_units));
  std::vector<ckpt::UnitId> units = begin.units;
  std::sort(units.begin(), units.end());
  if (std::adjacent_find(units.begin(), units.end()) != units.end()) {
    return make_error(ErrorCode::kInvalidArgument, "rank {}: a unit is named twice", begin.rank);
  }
  if (units.empty() || units.back() >= specs_->size()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rank {}: its plan names no unit, or one that the run does not have",
                      begin.rank);
  }
  std::vector<ckpt::UnitId> memory_units = begin.memory_units;
  std::sort(memory_units.begin(), memory_units.end());
  CKPT_TRY(check_memory_units(begin.rank, units, memory_units));
  CKPT_TRY(check_growth_written(begin, units, memory_units));
  fragments_declared_ += begin.fragments.size() + begin.blobs.size();
  CKPT_TRY(check_fragments(fragments_declared_));
  auto ledger = FragmentLedger::declare(begin.fragments, units, *specs_);
  if (!ledger) {
    return make_error(ErrorCode::kInvalidArgument, "rank {}: {}", begin.rank,
                      ledger.error().message);
  }
  CKPT_TRY(check_blobs(begin));
  CKPT_TRY(take_expert_tokens(begin));
  Member member{.plan = begin.plan,
                .units = std::move(units),
                .memory_units = std::move(memory_units),
                .ledger = std::move(ledger).value(),
                .metrics = begin.metrics,
                .blobs = begin.blobs,
                .blob_specs = {},
                .blob_ledger = {}};
  CKPT_TRY(declare_blobs(begin, member));
  members_.emplace(begin.rank, std::move(member));
  if (!everyone_began()) return {};
  CKPT_TRY(check_agreement());
  return check_plan();
}

// The run may have had a commit with the growth since the first member began.
Status OpenSnapshot::check_same_growth(const Ingest::Begin& begin,
                                       const std::vector<ckpt::UnitSpec>& units) const {
  const std::vector<ckpt::UnitSpec>& first = *specs_;
  const auto one_sided = [](const std::string& name, Rank with, Rank without) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rank {} grows the run by unit {}, rank {} does not: all ranks must grow it "
                      "by the same units",
                      with, name, without);
  };
  const size_t known = std::min(begin.known_units, units.size());
  for (size_t unit = known; unit < std::max(units.size(), first.size()); ++unit) {
    if (unit >= units.size()) return one_sided(first[unit].name, first_rank_, begin.rank);
    if (unit >= first.size() || units[unit].name != first[unit].name) {
      return one_sided(units[unit].name, begin.rank, first_rank_);
    }
    if (units[unit] == first[unit]) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "rank {} grows the run by unit {} with {}, as "
                      "rank {} has it",
                      begin.rank, units[unit].name, difference(first[unit], units[unit]),
                      first_rank_);
  }
  return {};
}

// Both lists are ascending.
Status OpenSnapshot::check_growth_written(const Ingest::Begin& begin,
                                          const std::vector<ckpt::UnitId>& units,
                                          const std::vector<ckpt::UnitId>& memory_units) const {
  for (size_t i = known_units_; i < specs_->size(); ++i) {
    const auto unit = static_cast<ckpt::UnitId>(i);
    const bool written = std::binary_search(units.begin(), units.end(), unit) &&
                         !std::binary_search(memory_units.begin(), memory_units.end(), unit);
    if (written) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "rank {}: unit {} is new in the run, so the snapshot must write it",
                      begin.rank, (*specs_)[unit].name);
  }
  return {};
}

// True if the snapshot writes every unit that belongs to its view.
bool OpenSnapshot::is_full(const Member& member) const {
  size_t written = 0;
  size_t absent = 0;
  for (ckpt::UnitId unit = 0; unit < specs_->size(); ++unit) {
    const bool planned = std::binary_search(member.units.begin(), member.units.end(), unit);
    const bool kept =
        std::binary_search(member.memory_units.begin(), member.memory_units.end(), unit);
    if (planned && !kept) {
      ++written;
    } else if (std::binary_search(absent_.begin(), absent_.end(), unit)) {
      ++absent;
    }
  }
  return written + absent == specs_->size();
}

// Limits of the whole commit. Each rank's blobs were checked on their own.
Status OpenSnapshot::check_blobs(const Ingest::Begin& begin) const {
  std::set<std::string_view> global;
  for (const ckpt::BlobSpec& blob : begin.blobs) {
    if (blob.global) global.insert(blob.name);
  }
  size_t count = begin.blobs.size();
  for (const auto& [rank, member] : members_) {
    count += member.blobs.size();
    for (const ckpt::BlobSpec& other : member.blobs) {
      if (!other.global || !global.contains(other.name)) continue;
      return make_error(ErrorCode::kInvalidArgument,
                        "ranks {} and {} both declare the global blob {}", rank, begin.rank,
                        other.name);
    }
  }
  if (count <= ckpt::kBlobsPerCommitMax) return {};
  return make_error(ErrorCode::kResourceExhausted, "{} blobs of all ranks, the most is {}", count,
                    ckpt::kBlobsPerCommitMax);
}

Status OpenSnapshot::declare_blobs(const Ingest::Begin& begin, Member& member) {
  std::vector<ckpt::UnitId> indexes;
  std::vector<ckpt::UnitRange> ranges;
  for (const ckpt::BlobSpec& blob : begin.blobs) {
    const auto index = static_cast<ckpt::UnitId>(indexes.size());
    indexes.push_back(index);
    if (blob.bytes > 0) ranges.push_back({.unit = index, .offset = 0, .length = blob.bytes});
    member.blob_specs.emplace_back();
    member.blob_specs.back().name = ckpt::blob_label(blob.name, begin.rank, blob.global);
    member.blob_specs.back().bytes = blob.bytes;
  }
  CKPT_ASSIGN(member.blob_ledger, FragmentLedger::declare(ranges, indexes, member.blob_specs));
  return {};
}

Status OpenSnapshot::seal(Rank rank, Member& member, const ckpt::ExtentFragment& fragment) const {
  ckpt::UnitRange range{
      .unit = fragment.unit, .offset = fragment.offset, .length = fragment.length};
  if (!ckpt::is_blob(fragment.unit)) return member.ledger.seal(range, *specs_);
  const uint32_t index = ckpt::index_of_blob(fragment.unit);
  if (ckpt::rank_of_blob(fragment.unit) != rank || index >= member.blobs.size()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} bytes of blob number {} of rank {} were sealed but not declared",
                      range.length, index, ckpt::rank_of_blob(fragment.unit));
  }
  range.unit = index;
  return member.blob_ledger.seal(range, member.blob_specs);
}

// Precondition: seal() has taken the fragment.
std::string OpenSnapshot::label_of(const ckpt::ExtentFragment& fragment) const {
  if (!ckpt::is_blob(fragment.unit)) return (*specs_)[fragment.unit].name;
  const Member& member = members_.at(ckpt::rank_of_blob(fragment.unit));
  return member.blob_specs[ckpt::index_of_blob(fragment.unit)].name;
}

std::optional<std::string> OpenSnapshot::Member::missing(const FragmentLedger::Specs& specs) const {
  if (const auto range = ledger.first_missing()) return specs[range->unit].name;
  if (const auto range = blob_ledger.first_missing()) return blob_specs[range->unit].name;
  return std::nullopt;
}

// Any rank may send the counts; ranks with different counts have not counted the same run.
Status OpenSnapshot::take_expert_tokens(const Ingest::Begin& begin) {
  if (begin.expert_tokens.empty() || begin.expert_tokens == expert_tokens_) return {};
  if (!expert_tokens_.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rank {} gives other token counts of experts than rank {}", begin.rank,
                      expert_tokens_from_);
  }
  expert_tokens_ = begin.expert_tokens;
  expert_tokens_from_ = begin.rank;
  return {};
}

// Checked when all ranks have begun: only then can the minority be named.
Status OpenSnapshot::check_agreement() const {
  using Units = std::vector<ckpt::UnitId>;
  std::map<std::tuple<ckpt::base::Hash128, Units, Units>, std::set<Rank>> opinions;
  for (const auto& [rank, member] : members_) {
    opinions[{member.plan, member.units, member.memory_units}].insert(rank);
  }
  if (opinions.size() == 1) return {};
  const auto most = std::max_element(
      opinions.begin(), opinions.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::set<Rank> others;
  for (const auto& opinion : opinions) {
    if (&opinion != &*most) others.insert(opinion.second.begin(), opinion.second.end());
  }
  return make_error(ErrorCode::kInvalidArgument, "{} {} to the plan of {}: the plans differ",
                    format_ranks(others), others.size() == 1 ? "does not agree" : "do not agree",
                    format_ranks(most->second));
}

// The members agree on the hash: checks that their parts make up the plan with this hash.
Status OpenSnapshot::check_plan() const {
  ckpt::Plan plan;
  plan.units = members_.begin()->second.units;
  plan.memory_units = members_.begin()->second.memory_units;
  std::vector<ckpt::UnitRange> ranges;
  for (const auto& [rank, member] : members_) {
    for (const ckpt::UnitRange& range : member.ledger.declared()) {
      ranges.push_back(range);
      plan.fragments.push_back({.rank = rank, .range = range});
    }
  }
  CKPT_TRY(ckpt::check_exact_coverage(plan.units, std::move(ranges), *specs_));
  if (plan_hash(std::move(plan)) != members_.begin()->second.plan) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the fragments that the ranks declared are not those of the plan they agreed "
                      "on: some rank contributes another rank's part");
  }
  return {};
}

Result<bool> OpenSnapshot::sealed(Rank rank, const std::vector<ckpt::ExtentFragment>& fragments) {
  const auto member = members_.find(rank);
  if (member == members_.end()) {
    return make_error(ErrorCode::kFailedPrecondition, "rank {} sealed a slab before it began it",
                      rank);
  }
  fragments_sealed_ += fragments.size();
  CKPT_TRY(check_fragments(fragments_sealed_));
  if (++slabs_sealed_ > limits::kExtentsPerSnapshotMax) {
    return make_error(ErrorCode::kResourceExhausted,
                      "more than {} slabs of all ranks: take larger ones",
                      limits::kExtentsPerSnapshotMax);
  }
  for (const ckpt::ExtentFragment& fragment : fragments) {
    const Status status = seal(rank, member->second, fragment);
    if (!status) {
      return make_error(status.error().code, "rank {}: {}", rank, status.error().message);
    }
  }
  const std::vector<ckpt::UnitId>& memory = member->second.memory_units;
  const auto in_memory = [&](const ckpt::ExtentFragment& fragment) {
    return std::binary_search(memory.begin(), memory.end(), fragment.unit);
  };
  const bool memory_only = !fragments.empty() && in_memory(fragments.front());
  for (const ckpt::ExtentFragment& fragment : fragments) {
    if (in_memory(fragment) == memory_only) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "rank {}: unit {} and unit {} lie in one slab, but only one of them is to be "
                      "written",
                      rank, label_of(fragments.front()), label_of(fragment));
  }
  writes_pending_.begun();
  return memory_only;
}

void OpenSnapshot::written() { writes_pending_.ended(); }

bool OpenSnapshot::sealed_everything(Rank rank) const {
  const auto member = members_.find(rank);
  return member != members_.end() && member->second.complete();
}

bool OpenSnapshot::staged() const {
  return everyone_began() && std::all_of(members_.begin(), members_.end(), [](const auto& member) {
           return member.second.complete();
         });
}

std::string OpenSnapshot::waiting_for() const {
  std::set<Rank> not_begun;
  std::string unsealed;
  for (Rank rank = 0; rank < group_size_; ++rank) {
    const auto member = members_.find(rank);
    if (member == members_.end()) {
      not_begun.insert(rank);
    } else if (const auto missing = member->second.missing(*specs_)) {
      unsealed += fmt::format("{}rank {} has not sealed all of unit {}",
                              unsealed.empty() ? "" : "; ", rank, *missing);
    }
  }
  std::string text;
  if (!not_begun.empty()) {
    text = fmt::format("{} {} not begun it", format_ranks(not_begun),
                       not_begun.size() == 1 ? "has" : "have");
  }
  if (!unsealed.empty()) text += (text.empty() ? "" : "; ") + unsealed;
  if (text.empty()) text = fmt::format("{} slabs are still being written", writes_pending_.count());
  return text;
}

Ingest::CommitAction OpenSnapshot::commit_action() const {
  CKPT_ASSERT_MSG(ready_to_commit(), "a commit before all slabs are sealed and written");
  const Member& first = members_.begin()->second;
  Ingest::CommitAction action;
  action.snapshot = key_;
  action.full = is_full(first);
  action.plan = first.plan;
  action.expert_tokens = expert_tokens_;
  action.first_grown = static_cast<ckpt::UnitId>(known_units_);
  action.grown.assign(specs_->begin() + static_cast<ptrdiff_t>(known_units_), specs_->end());
  for (const auto& [rank, member] : members_) {
    action.metrics.insert(member.metrics.begin(), member.metrics.end());
    for (size_t i = 0; i < member.blobs.size(); ++i) {
      action.blobs[ckpt::blob_id(rank, i)] = member.blobs[i];
    }
  }
  return action;
}

Error OpenSnapshot::named(const Error& error) const {
  return name_snapshot(run_name_, key_.step, error);
}

}  // namespace ckptd
