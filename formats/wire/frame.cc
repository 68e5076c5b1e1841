#include "formats/wire/frame.h"

#include "formats/base/crc32c.h"
#include "formats/wire/unpacked.h"

namespace ckpt::wire {
namespace {

struct FrameHeader {
  uint32_t magic;          // "CKP1": this is a frame, and in this framing
  uint32_t payload_bytes;  // of the message that follows
  uint32_t payload_crc32c;
  uint32_t reserved;  // zero
};
static_assert(sizeof(FrameHeader) == kFrameHeaderBytes);

constexpr uint32_t kMagic = 0x31504b43;  // the bytes "CKP1"

// FlatBuffers read their scalars in place, so the buffer must be aligned as its scalars are.
constexpr uintptr_t kAlignment = 8;

Result<fb::MessageT> decode_aligned(ByteView payload) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(payload.data());
  flatbuffers::Verifier verifier(bytes, payload.size(), verifier_options());
  if (!fb::VerifyMessageBuffer(verifier)) {
    return make_error(ErrorCode::kCorrupt, "frame: the message's structure is broken");
  }
  const fb::Message* message = fb::GetMessage(bytes);
  const fb::MessageBody type = message->body_type();
  if (type <= fb::MessageBody::NONE || type > fb::MessageBody::MAX || message->body() == nullptr) {
    return make_error(ErrorCode::kCorrupt, "frame: message of unknown kind {}",
                      static_cast<int>(type));
  }
  if (!unpacks_safely(payload, *fb::MessageTypeTable())) {
    return make_error(ErrorCode::kCorrupt,
                      "frame: the message's parts share bytes or are not aligned");
  }
  fb::MessageT unpacked;
  message->UnPackTo(&unpacked);
  return unpacked;
}

}  // namespace

Result<std::vector<std::byte>> try_encode(const fb::MessageT& message) {
  CKPT_ASSERT(message.body.type != fb::MessageBody::NONE);
  flatbuffers::FlatBufferBuilder builder;
  fb::FinishMessageBuffer(builder, fb::Message::Pack(builder, &message));
  if (builder.GetSize() > kFramePayloadBytesMax) {
    return make_error(
        ErrorCode::kResourceExhausted, "message {}: {} bytes, a frame carries at most {}",
        fb::EnumNameMessageBody(message.body.type), builder.GetSize(), kFramePayloadBytesMax);
  }
  const ByteView payload = {reinterpret_cast<const std::byte*>(builder.GetBufferPointer()),
                            builder.GetSize()};
  std::vector<std::byte> frame;
  frame.reserve(kFrameHeaderBytes + payload.size());
  frame.resize(kFrameHeaderBytes);
  base::store(frame.data(), FrameHeader{.magic = kMagic,
                                        .payload_bytes = static_cast<uint32_t>(payload.size()),
                                        .payload_crc32c = base::crc32c(payload),
                                        .reserved = 0});
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

std::vector<std::byte> encode(const fb::MessageT& message) { return try_encode(message).value(); }

Result<size_t> frame_bytes(ByteView header) {
  if (header.size() < kFrameHeaderBytes) {
    return make_error(ErrorCode::kCorrupt, "frame: {} bytes, its header takes {}", header.size(),
                      kFrameHeaderBytes);
  }
  const auto fields = base::load<FrameHeader>(header.data());
  if (fields.magic != kMagic) {
    return make_error(ErrorCode::kCorrupt, "frame: does not start with CKP1");
  }
  if (fields.reserved != 0) {
    return make_error(ErrorCode::kCorrupt, "frame: reserved header bytes are not zero");
  }
  if (fields.payload_bytes == 0 || fields.payload_bytes > kFramePayloadBytesMax) {
    return make_error(ErrorCode::kCorrupt, "frame: payload of {} bytes, allowed are 1 to {}",
                      fields.payload_bytes, kFramePayloadBytesMax);
  }
  return kFrameHeaderBytes + fields.payload_bytes;
}

Result<fb::MessageT> decode(ByteView frame) {
  CKPT_ASSIGN(const size_t expected, frame_bytes(frame));
  if (frame.size() != expected) {
    return make_error(ErrorCode::kCorrupt, "frame: {} bytes, its header says {}", frame.size(),
                      expected);
  }
  const ByteView payload = frame.subspan(kFrameHeaderBytes);
  if (base::crc32c(payload) != base::load<FrameHeader>(frame.data()).payload_crc32c) {
    return make_error(ErrorCode::kCorrupt, "frame: payload does not match its checksum");
  }
  if (reinterpret_cast<uintptr_t>(payload.data()) % kAlignment == 0) {
    return decode_aligned(payload);
  }
  const std::vector<std::byte> aligned(payload.begin(), payload.end());
  return decode_aligned(aligned);
}

void FrameReader::append(ByteView bytes) {
  // Consumed frames are dropped once they are the larger half, so that each byte moves about once.
  if (begin_ > buffer_.size() / 2) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(begin_));
    begin_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<fb::MessageT>> FrameReader::next() {
  const ByteView unread = ByteView(buffer_).subspan(begin_);
  if (unread.size() < kFrameHeaderBytes) return std::optional<fb::MessageT>();
  CKPT_ASSIGN(const size_t bytes, frame_bytes(unread));
  if (unread.size() < bytes) return std::optional<fb::MessageT>();
  CKPT_ASSIGN(fb::MessageT message, decode(unread.first(bytes)));
  begin_ += bytes;
  if (begin_ == buffer_.size()) {
    // Buffers are freed between messages: one large message must not keep a large buffer for good.
    constexpr size_t kKeepBytes = 1u << 20;
    begin_ = 0;
    buffer_.clear();
    if (buffer_.capacity() > kKeepBytes) buffer_.shrink_to_fit();
  }
  return std::optional<fb::MessageT>(std::move(message));
}

}  // namespace ckpt::wire
