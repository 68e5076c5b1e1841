// Values of the catalog in memory and as bytes. Decoders verify before they read: a value that does
// not verify gives nullopt, whatever its bytes are.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptd/catalog/catalog.h"

namespace ckptd::values {

// The part of a run that changes with its history.
struct RunCounters {
  ckpt::LineageId current_lineage = 0;
  ckpt::Epoch last_epoch = 0;
  uint64_t commits = 0;
  uint64_t bytes = 0;
  uint64_t removed_ns = 0;
  std::string removed_reason;
};
std::string encode(const RunCounters& counters);
std::optional<RunCounters> decode_run_counters(std::string_view value);

struct VersionValue {
  ckpt::Epoch epoch = 0;
  uint32_t attempt = 0;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
  bool damaged = false;
  std::vector<FragmentPlace> places;
};
std::string encode(const VersionValue& version);
std::optional<VersionValue> decode_version(std::string_view value);

// A commit's entry. `info` holds what later records change; encode() takes the rest from `record`.
struct CommitValue {
  CommitInfo info;
  std::vector<ckpt::fb::ExtentT> extents;
  ckpt::fb::CommittedT record;  // without extents, and without the lists that other entries hold
  // Extent numbers of these fragments are positions in `extents`.
  std::vector<ckpt::fb::BlobT> blobs = {};
  std::vector<ckpt::fb::Fragment> blob_fragments = {};
  std::vector<ckpt::fb::UnitT> grown = {};
  void drop_blobs();
  void drop_growth();
  // The record with its extents, blobs and growth, and without fragments of units.
  ckpt::fb::CommittedT with_extents() const;
};
// The entry of a new commit. The caller adds sequence and bytes.
CommitValue commit_value(const ckpt::fb::CommittedT& record);
std::string encode(const CommitValue& commit);
// nullopt also for the entry of a commit other than the one that the key names.
std::optional<CommitValue> decode_commit(std::string_view value, ckpt::RunId run,
                                         ckpt::LineageId lineage, ckpt::Step step);
// The same for listings, which need no extents.
std::optional<CommitInfo> decode_commit_info(std::string_view value, ckpt::RunId run,
                                             ckpt::LineageId lineage, ckpt::Step step);

std::string encode(const ckpt::ExpertTokenCounts& counts);
std::optional<ckpt::ExpertTokenCounts> decode_token_counts(std::string_view value);

// Ascending by unit.
using UnitCrcs = std::vector<std::pair<ckpt::UnitId, uint32_t>>;
std::string encode(const UnitCrcs& sums);
std::optional<UnitCrcs> decode_unit_sums(std::string_view value);

std::string encode(const std::vector<SpaceRange>& ranges);
std::optional<std::vector<SpaceRange>> decode_ranges(std::string_view value);

std::string encode(const ckptd::ScrubState& state);
std::optional<ckptd::ScrubState> decode_scrub_state(std::string_view value);

std::string encode(const ckpt::fb::RecordT& record);
std::optional<ckpt::fb::RecordT> decode_record(std::string_view value);

}  // namespace ckptd::values
