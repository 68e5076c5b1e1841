// Frames: how messages of wire.fbs travel over a stream socket.
//
//   frame := magic "CKP1" (4) | payload bytes, u32 (4) | CRC32C of the payload (4) | zero (4) |
//   payload
//
// The payload is one FlatBuffers Message, verified before any field of it is read.
#pragma once

#include <optional>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/result.h"
#include "formats/wire/protocol.h"  // every greeting needs it
#include "formats/wire/wire_generated.h"

namespace ckpt::wire {

inline constexpr size_t kFrameHeaderBytes = 16;
inline constexpr size_t kFramePayloadBytesMax = 32u << 20;

// Encodes a message as a whole frame. encode(BodyT) wraps the body in a Message. encode() asserts
// that the message fits into a frame; try_encode() returns kResourceExhausted instead, for messages
// whose size a user decides (RegisterUnits, BeginSnapshot, KvSet, QueryReply).
Result<std::vector<std::byte>> try_encode(const fb::MessageT& message);
std::vector<std::byte> encode(const fb::MessageT& message);
template <typename BodyT>
std::vector<std::byte> encode(BodyT body) {
  fb::MessageT message;
  message.body.Set(std::move(body));
  return encode(message);
}
template <typename BodyT>
Result<std::vector<std::byte>> try_encode(BodyT body) {
  fb::MessageT message;
  message.body.Set(std::move(body));
  return try_encode(message);
}

// Size of the frame that `header` (kFrameHeaderBytes) announces, header included; an error for a
// wrong magic, a nonzero reserve, or a payload that is empty or above the bound.
Result<size_t> frame_bytes(ByteView header);

// Decodes a whole frame; checks CRC and structure. The body is never NONE, and unpacking a frame
// takes memory in proportion to its size, whatever it claims.
Result<fb::MessageT> decode(ByteView frame);

// Collects bytes from a socket and gives out whole messages.
class FrameReader {
 public:
  void append(ByteView bytes);
  // The next message; nullopt if more bytes are needed. After an error the stream is unusable.
  Result<std::optional<fb::MessageT>> next();

 private:
  std::vector<std::byte> buffer_;
  size_t begin_ = 0;
};

}  // namespace ckpt::wire
