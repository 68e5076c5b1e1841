// Commits: the record as the journal has it, except for lists that other entries hold, and the
// state that later records change.
#include <algorithm>
#include <memory>
#include <utility>

#include "ckptd/catalog/values.h"
#include "ckptd/catalog/verified.h"

namespace ckptd {

CommitInfo info_of(const ckpt::fb::CommittedT& record) {
  CommitInfo info;
  info.snapshot = ckpt::key_of(record);
  info.time_ns = record.time_ns;
  info.full = record.full;
  for (const ckpt::fb::Fragment& fragment : record.fragments) {
    if (info.units.empty() || info.units.back() != fragment.unit()) {
      info.units.push_back(fragment.unit());
    }
  }
  std::ranges::sort(info.units);
  info.units.erase(std::ranges::unique(info.units).begin(), info.units.end());
  for (const ckpt::fb::ExpertTokens& lost : record.expert_lost) info.lost_tokens += lost.tokens();
  for (const auto& metric : record.metrics) info.metrics[metric->name] = metric->value;
  info.alarms = ckpt::from_fb(record.alarms, record.alarms_left_out);
  info.blobs = static_cast<uint32_t>(record.blobs.size());
  for (const auto& blob : record.blobs) info.blob_bytes += blob->bytes;
  info.grown = static_cast<uint32_t>(record.grown.size());
  return info;
}

namespace values {
namespace {

using Nested = flatbuffers::Vector<uint8_t>;

flatbuffers::Offset<Nested> nest(flatbuffers::FlatBufferBuilder& builder,
                                 const ckpt::fb::CommittedT& record) {
  const std::vector<std::byte> bytes = ckpt::encode_commit(record);
  builder.ForceVectorAlignment(bytes.size(), 1, sizeof(uint64_t));  // decoded in place
  return builder.CreateVector(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

std::optional<ckpt::fb::CommittedT> unnest(const Nested* bytes) {
  if (bytes == nullptr) return std::nullopt;
  auto record =
      ckpt::decode_commit({reinterpret_cast<const std::byte*>(bytes->data()), bytes->size()});
  if (!record.ok()) return std::nullopt;
  return std::move(record).value();
}

// All but the extents; nullopt: the record is of another commit.
std::optional<CommitValue> decode_without_extents(const Commit& commit, ckpt::RunId run,
                                                  ckpt::LineageId lineage, ckpt::Step step) {
  auto record = unnest(commit.record());
  if (!record || record->run != run || record->lineage != lineage || record->step != step) {
    return std::nullopt;
  }
  CommitValue decoded{.info = info_of(*record), .extents = {}, .record = std::move(*record)};
  CommitInfo& info = decoded.info;
  info.sequence = commit.sequence();
  info.bytes = commit.bytes();
  info.damaged = commit.damaged();
  info.deleted = commit.deleted();
  info.ended_ns = commit.ended_ns();
  info.kept_tokens = commit.kept_tokens();
  info.lost_tokens = commit.lost_tokens();
  info.moved = commit.moved();
  info.blobs = commit.blobs();
  info.blob_bytes = commit.blob_bytes();
  info.grown = commit.grown();
  if (commit.reason() != nullptr) info.reason = commit.reason()->str();
  if (commit.units() != nullptr) {
    info.units.assign(commit.units()->begin(), commit.units()->end());
  }
  return decoded;
}

void add_extents(const CommitValue& commit, ckpt::fb::CommittedT& record) {
  for (const ckpt::fb::ExtentT& extent : commit.extents) {
    record.extents.push_back(std::make_unique<ckpt::fb::ExtentT>(extent));
  }
  for (const ckpt::fb::BlobT& blob : commit.blobs) {
    record.blobs.push_back(std::make_unique<ckpt::fb::BlobT>(blob));
  }
  record.blob_fragments = commit.blob_fragments;
  for (const ckpt::fb::UnitT& unit : commit.grown) {
    record.grown.push_back(std::make_unique<ckpt::fb::UnitT>(unit));
  }
}

}  // namespace

CommitValue commit_value(const ckpt::fb::CommittedT& record) {
  CommitValue value{.info = info_of(record), .extents = {}, .record = record};
  for (const auto& extent : record.extents) value.extents.push_back(*extent);
  for (const auto& blob : record.blobs) value.blobs.push_back(*blob);
  value.blob_fragments = record.blob_fragments;
  for (const auto& unit : record.grown) value.grown.push_back(*unit);
  value.record.grown.clear();
  value.record.blobs.clear();
  value.record.blob_fragments.clear();
  value.record.extents.clear();
  value.record.fragments.clear();
  value.record.encoded.clear();
  value.record.bases.clear();
  value.record.expert_tokens.clear();
  value.record.expert_lost.clear();
  return value;
}

void CommitValue::drop_blobs() {
  blobs.clear();
  blob_fragments.clear();
  info.blobs = 0;
  info.blob_bytes = 0;
}

void CommitValue::drop_growth() {
  grown.clear();
  info.grown = 0;
}

ckpt::fb::CommittedT CommitValue::with_extents() const {
  ckpt::fb::CommittedT whole = record;
  add_extents(*this, whole);
  return whole;
}

std::string encode(const CommitValue& commit) {
  ckpt::fb::CommittedT extents;
  add_extents(commit, extents);
  const CommitInfo& info = commit.info;
  flatbuffers::FlatBufferBuilder builder;
  const auto reason = builder.CreateString(info.reason);
  const auto units = builder.CreateVector(info.units);
  const auto record = nest(builder, commit.record);
  const auto places = nest(builder, extents);
  return finish(builder,
                CreateCommit(builder, info.sequence, info.bytes, info.damaged, info.deleted, reason,
                             info.ended_ns, units, info.kept_tokens, info.lost_tokens, info.moved,
                             record, places, info.blobs, info.blob_bytes, info.grown));
}

std::optional<CommitValue> decode_commit(std::string_view value, ckpt::RunId run,
                                         ckpt::LineageId lineage, ckpt::Step step) {
  const Verified<Commit> commit(value);
  if (!commit) return std::nullopt;
  auto decoded = decode_without_extents(*commit, run, lineage, step);
  const auto listed = unnest(commit->extents());
  if (!decoded || !listed) return std::nullopt;
  for (const auto& extent : listed->extents) decoded->extents.push_back(*extent);
  for (const auto& blob : listed->blobs) decoded->blobs.push_back(*blob);
  decoded->blob_fragments = listed->blob_fragments;
  for (const auto& unit : listed->grown) decoded->grown.push_back(*unit);
  return decoded;
}

std::optional<CommitInfo> decode_commit_info(std::string_view value, ckpt::RunId run,
                                             ckpt::LineageId lineage, ckpt::Step step) {
  const Verified<Commit> commit(value);
  if (!commit) return std::nullopt;
  auto decoded = decode_without_extents(*commit, run, lineage, step);
  return decoded ? std::optional(std::move(decoded->info)) : std::nullopt;
}

}  // namespace values
}  // namespace ckptd
