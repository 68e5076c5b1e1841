#include "formats/journal.h"

#include <limits>

#include "formats/base/ids.h"
#include "formats/journal_record.h"
#include "formats/wire/unpacked.h"

namespace ckpt {
namespace {

Result<fb::RecordT> decode_aligned(ByteView body) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(body.data());
  flatbuffers::Verifier verifier(bytes, body.size(), wire::verifier_options());
  if (!fb::VerifyRecordBuffer(verifier)) {
    return make_error(ErrorCode::kCorrupt, "record: its structure is broken");
  }
  const fb::Record* record = fb::GetRecord(bytes);
  const fb::RecordBody type = record->body_type();
  if (type > fb::RecordBody::MAX) {
    return make_error(ErrorCode::kVersionMismatch, "record: kind {} of a newer version",
                      static_cast<int>(type));
  }
  if (type == fb::RecordBody::NONE || record->body() == nullptr) {
    return make_error(ErrorCode::kCorrupt, "record: empty");
  }
  if (!wire::unpacks_safely(body, *fb::RecordTypeTable())) {
    return make_error(ErrorCode::kCorrupt, "record: its parts share bytes or are not aligned");
  }
  fb::RecordT unpacked;
  record->UnPackTo(&unpacked);
  return unpacked;
}

}  // namespace

std::vector<std::byte> encode_record(const fb::RecordT& record) {
  CKPT_ASSERT(record.body.type != fb::RecordBody::NONE);
  flatbuffers::FlatBufferBuilder builder;
  fb::FinishRecordBuffer(builder, fb::Record::Pack(builder, &record));
  const auto* bytes = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {bytes, bytes + builder.GetSize()};
}

Result<fb::RecordT> decode_record(ByteView bytes) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % journal::kRecordAlignment == 0) {
    return decode_aligned(bytes);
  }
  const std::vector<std::byte> aligned(bytes.begin(), bytes.end());
  return decode_aligned(aligned);
}

JournalEncoder::Batch JournalEncoder::encode(const std::vector<fb::RecordT>& records) {
  CKPT_ASSERT(!records.empty());
  std::vector<std::vector<std::byte>> bodies;
  bodies.reserve(records.size());
  uint64_t used_bytes = 0;
  for (const fb::RecordT& record : records) {
    bodies.push_back(encode_record(record));
    CKPT_ASSERT(bodies.back().size() <= std::numeric_limits<uint32_t>::max());
    used_bytes += journal::record_bytes(bodies.back().size());
  }

  Batch batch{.offset = position_.offset,
              .first_sequence = position_.next_sequence,
              .bytes = std::vector<std::byte>(base::align_up(used_bytes, kBlockBytes))};
  uint64_t at = 0;
  for (size_t i = 0; i < bodies.size(); ++i) {
    const MutableByteView record =
        MutableByteView(batch.bytes).subspan(at, journal::record_bytes(bodies[i].size()));
    const MutableByteView body = record.subspan(sizeof(journal::RecordHeader));
    std::memcpy(body.data(), bodies[i].data(), bodies[i].size());
    journal::RecordHeader header{.magic = journal::kRecordMagic,
                                 .header_crc32c = 0,
                                 .body_crc32c = base::crc32c(body),
                                 .body_bytes = static_cast<uint32_t>(bodies[i].size()),
                                 .sequence = position_.next_sequence++,
                                 .batch = position_.next_batch,
                                 .offset = position_.offset + at,
                                 .batch_bytes = batch.bytes.size(),
                                 .batch_records = static_cast<uint32_t>(bodies.size()),
                                 .batch_index = static_cast<uint32_t>(i),
                                 .salt = position_.salt,
                                 .chain = position_.chain,
                                 .reserved = {}};
    header.header_crc32c = journal::crc32c_of(header);
    base::store(record.data(), header);
    position_.chain = journal::chain_after(record);
    at += record.size();
  }
  position_.offset += batch.bytes.size();
  ++position_.next_batch;
  return batch;
}

}  // namespace ckpt
