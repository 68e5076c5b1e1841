#include "formats/commit.h"

#include <algorithm>
#include <memory>

#include "formats/base/assert.h"
#include "formats/blob.h"
#include "formats/codec.h"
#include "formats/journal.h"

namespace ckpt {

std::vector<std::byte> encode_commit(const fb::CommittedT& commit) {
  flatbuffers::FlatBufferBuilder builder;
  const auto body = fb::Committed::Pack(builder, &commit).Union();
  fb::FinishRecordBuffer(builder, fb::CreateRecord(builder, fb::RecordBody::Committed, body));
  const auto* bytes = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {bytes, bytes + builder.GetSize()};
}

Result<fb::CommittedT> decode_commit(ByteView bytes) {
  CKPT_ASSIGN(fb::RecordT record, decode_record(bytes));
  fb::CommittedT* commit = record.body.AsCommitted();
  if (commit == nullptr) return make_error(ErrorCode::kCorrupt, "record: not of a commit");
  return std::move(*commit);
}

uint64_t encoded_bytes(const CommitSize& size) {
  // A table Extent and its offset in the list.
  constexpr uint64_t kOwnExtentBytes = 64;
  constexpr uint64_t kSharedExtentBytes = 96;
  constexpr uint64_t kBlobBytes = 48;  // likewise, without the characters of its name
  return size.fragments * sizeof(fb::Fragment) + size.encoded * sizeof(fb::Encoded) +
         size.bases * sizeof(fb::Base) + size.own_extents * kOwnExtentBytes +
         size.shared_extents * kSharedExtentBytes + size.tokens * sizeof(fb::ExpertTokens) +
         size.blobs * kBlobBytes + size.blob_name_bytes + size.grown_bytes;
}

uint64_t grown_bytes(const UnitSpec& unit) {
  constexpr uint64_t kUnitBytes = 96;    // table, offsets and padding, without the name
  constexpr uint64_t kTensorBytes = 80;  // likewise, without the shape
  uint64_t bytes = kUnitBytes + unit.name.size();
  for (const TensorSpec& tensor : unit.tensors) {
    bytes += kTensorBytes + tensor.name.size() + tensor.shape.size() * sizeof(uint64_t);
  }
  return bytes;
}

SnapshotKey writer_of(const fb::ExtentT& extent, const SnapshotKey& commit) {
  if (!is_shared(extent)) return commit;
  return {commit.run, extent.lineage, extent.epoch, extent.step, extent.attempt};
}

fb::ExtentT as_shared(const fb::ExtentT& extent, const SnapshotKey& commit) {
  const SnapshotKey writer = writer_of(extent, commit);
  fb::ExtentT shared = extent;
  shared.lineage = writer.lineage;
  shared.epoch = writer.epoch;
  shared.step = writer.step;
  shared.attempt = writer.attempt;
  return shared;
}

const fb::BlobT* find_blob(const fb::CommittedT& commit, UnitId id) {
  const auto found = std::find_if(commit.blobs.begin(), commit.blobs.end(),
                                  [id](const auto& blob) { return blob->id == id; });
  return found == commit.blobs.end() ? nullptr : found->get();
}

std::optional<std::string> label_of(const fb::CommittedT& commit,
                                    const std::vector<UnitSpec>& units, UnitId unit) {
  if (unit < units.size()) return units[unit].name;
  const fb::BlobT* blob = is_blob(unit) ? find_blob(commit, unit) : nullptr;
  if (blob == nullptr) return std::nullopt;
  return blob_label(blob->name, rank_of_blob(unit), blob->global);
}

void fill_extents(const std::vector<WrittenExtent>& extents, fb::CommittedT& commit,
                  const WrittenBases& bases) {
  commit.extents.clear();
  commit.fragments.clear();
  commit.encoded.clear();
  commit.bases.clear();
  commit.blob_fragments.clear();
  std::map<std::pair<SegmentId, uint64_t>, uint32_t> numbers;
  for (const WrittenExtent& extent : extents) {
    numbers[{extent.segment, extent.offset}] = static_cast<uint32_t>(commit.extents.size());
    commit.extents.push_back(std::make_unique<fb::ExtentT>(extent));
  }
  for (uint32_t index = 0; index < extents.size(); ++index) {
    for (const ExtentFragment& fragment : extents[index].fragments) {
      if (is_blob(fragment.unit)) {
        CKPT_ASSERT_MSG(fragment.codec == 0, "an encoded blob");
        commit.blob_fragments.emplace_back(fragment.unit, index, fragment.offset, fragment.length,
                                           fragment.payload_offset, fragment.crc32c, 0);
        continue;
      }
      const auto number = static_cast<uint32_t>(commit.fragments.size());
      if (fragment.codec != 0) {
        commit.encoded.emplace_back(number, fragment.encoded_crc32c, fragment.encoded_bytes);
      }
      if (is_delta(fragment.codec)) {
        const WrittenBase& base = bases.at({fragment.unit, fragment.offset});
        CKPT_ASSERT(base.crc32c == fragment.base_crc32c);
        commit.bases.emplace_back(number, numbers.at({base.segment, base.extent_offset}),
                                  base.payload_offset, base.crc32c, base.codec, base.encoded_bytes,
                                  base.encoded_crc32c, base.deltas);
      }
      commit.fragments.emplace_back(fragment.unit, index, fragment.offset, fragment.length,
                                    fragment.payload_offset, fragment.crc32c, fragment.codec);
    }
  }
}

}  // namespace ckpt
