#include "formats/wire/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "formats/base/crc32c.h"
#include "tests/formats/samples.h"

namespace ckpt::wire {
namespace {

using ::testing::HasSubstr;

// A frame around a payload made by hand, its checksum right.
std::vector<std::byte> frame_around(ByteView payload) {
  std::vector<std::byte> frame(kFrameHeaderBytes + payload.size());
  std::memcpy(frame.data(), "CKP1", 4);
  base::store(frame.data() + 4, static_cast<uint32_t>(payload.size()));
  base::store(frame.data() + 8, base::crc32c(payload));
  std::copy(payload.begin(), payload.end(), frame.begin() + kFrameHeaderBytes);
  return frame;
}
std::vector<std::byte> frame_around(const flatbuffers::FlatBufferBuilder& builder) {
  return frame_around(
      ByteView(reinterpret_cast<const std::byte*>(builder.GetBufferPointer()), builder.GetSize()));
}

TEST(Frame, EveryKindOfMessageRoundTrips) {
  std::set<fb::MessageBody> kinds;
  for (const fb::MessageT& message : test::one_message_of_each_kind()) {
    const std::vector<std::byte> frame = encode(message);
    EXPECT_EQ(frame_bytes(frame).value(), frame.size());
    const fb::MessageT back = decode(frame).value();
    EXPECT_EQ(back.body.type, message.body.type);
    EXPECT_EQ(encode(back), frame) << fb::EnumNameMessageBody(message.body.type);
    kinds.insert(back.body.type);
  }
  EXPECT_EQ(kinds.size(), static_cast<size_t>(fb::MessageBody::MAX));
}

TEST(Frame, KeepsEveryField) {
  const fb::MessageT back = decode(encode(test::sample_begin_snapshot())).value();
  const fb::BeginSnapshotT& begin = *back.body.AsBeginSnapshot();
  EXPECT_EQ(begin.step, 1200u);
  EXPECT_EQ(begin.plan.low(), 1u);
  EXPECT_EQ(begin.plan.high(), 2u);
  EXPECT_EQ(begin.fragments.at(1).unit(), 1u);
  EXPECT_EQ(begin.fragments.at(1).offset(), 72u);
  EXPECT_EQ(begin.out_of_slabs, fb::OutOfSlabs::Skip);
  EXPECT_EQ(begin.metrics.at(0)->name, "loss");
  EXPECT_EQ(begin.metrics.at(0)->value, 2.5);
  EXPECT_EQ(begin.expert_tokens.at(0).tokens(), 900u);
  EXPECT_EQ(begin.expert_tokens.at(1).expert(), 1u);
  EXPECT_EQ(begin.staleness_max, 40u);
  ASSERT_EQ(begin.expert_lost.size(), 1u);
  EXPECT_EQ(begin.expert_lost[0].layer(), 3u);
  EXPECT_EQ(begin.expert_lost[0].tokens(), 70u);
  ASSERT_EQ(begin.blobs.size(), 1u);
  EXPECT_EQ(begin.blobs[0]->name, "rng");
  EXPECT_EQ(begin.blobs[0]->bytes, 40u);
  ASSERT_EQ(begin.grown.size(), 1u);
  EXPECT_EQ(begin.grown[0]->unit->name, "adapter");
  EXPECT_EQ(begin.grown[0]->unit->tensors.at(0)->name, "w1");
  EXPECT_EQ(begin.grown[0]->codec, fb::UnitCodec::Zstd);
  EXPECT_EQ(begin.grown[0]->flags, 1u);
}

TEST(Frame, DecodesAtEveryAlignment) {
  const std::vector<std::byte> frame = encode(test::sample_register_units(3));
  for (size_t shift = 0; shift < 8; ++shift) {
    std::vector<std::byte> shifted(shift);
    shifted.insert(shifted.end(), frame.begin(), frame.end());
    EXPECT_TRUE(decode(ByteView(shifted).subspan(shift)).ok());
  }
}

TEST(Frame, SenderRefusesOversizedMessage) {
  fb::KvSetT set;
  set.value.resize(kFramePayloadBytesMax);
  const Result<std::vector<std::byte>> frame = try_encode(std::move(set));
  ASSERT_FALSE(frame.ok());
  EXPECT_EQ(frame.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(frame.error().message, HasSubstr("message KvSet"));
}

TEST(FrameHeader, IsCheckedBeforeAnythingIsRead) {
  const std::vector<std::byte> frame = encode(test::sample_hello());
  const auto error = [&frame](size_t at, uint32_t value) {
    std::vector<std::byte> changed = frame;
    base::store(changed.data() + at, value);
    const Result<size_t> bytes = frame_bytes(changed);
    return bytes.ok() ? std::string("none") : bytes.error().message;
  };
  EXPECT_THAT(error(0, 0x32504b43), HasSubstr("does not start with CKP1"));
  EXPECT_THAT(error(4, 0), HasSubstr("payload of 0 bytes"));
  EXPECT_THAT(error(4, kFramePayloadBytesMax + 1), HasSubstr("allowed are 1 to 33554432"));
  EXPECT_EQ(error(4, kFramePayloadBytesMax), "none");
  EXPECT_THAT(error(12, 1), HasSubstr("reserved"));
  EXPECT_FALSE(frame_bytes(ByteView(frame).first(15)).ok());
}

TEST(Frame, AnUnknownOrAbsentBodyIsRefused) {
  for (const int kind : {0, static_cast<int>(fb::MessageBody::MAX) + 1, 255}) {
    flatbuffers::FlatBufferBuilder builder;
    const auto body = fb::CreateDone(builder, 1);
    fb::MessageBuilder message(builder);
    message.add_body_type(static_cast<fb::MessageBody>(kind));
    if (kind != 0) message.add_body(body.Union());
    fb::FinishMessageBuffer(builder, message.Finish());
    const Result<fb::MessageT> decoded = decode(frame_around(builder));
    ASSERT_FALSE(decoded.ok());
    EXPECT_THAT(decoded.error().message, HasSubstr("unknown kind"));
  }
}

TEST(Frame, MissingRequiredPartIsRefused) {
  flatbuffers::FlatBufferBuilder builder;
  // ReopenSnapshot without `begin`: built as a Done, which has the same first field, and
  // relabelled.
  const auto body = fb::CreateDone(builder, 1);
  fb::FinishMessageBuffer(
      builder, fb::CreateMessage(builder, fb::MessageBody::ReopenSnapshot, body.Union()));
  EXPECT_FALSE(decode(frame_around(builder)).ok());
}

// 20,000 references to one unit with a name of 64 KiB: 140 KiB that unpack to 1.3 GB.
TEST(Frame, SharedPartsAreRefusedBeforeUnpacking) {
  flatbuffers::FlatBufferBuilder builder;
  const auto name = builder.CreateString(std::string(1u << 16, 'x'));
  fb::UnitBuilder unit(builder);
  unit.add_name(name);
  const std::vector<flatbuffers::Offset<fb::Unit>> units(20'000, unit.Finish());
  const auto list = builder.CreateVector(units);
  const auto body = fb::CreateRegisterUnits(builder, 1, list);
  fb::FinishMessageBuffer(builder,
                          fb::CreateMessage(builder, fb::MessageBody::RegisterUnits, body.Union()));
  const Result<fb::MessageT> decoded = decode(frame_around(builder));
  ASSERT_FALSE(decoded.ok());
  EXPECT_THAT(decoded.error().message, HasSubstr("share bytes"));
}

TEST(FrameReader, MessagesDoNotDependOnChunking) {
  std::vector<std::byte> stream;
  std::vector<std::vector<std::byte>> frames;
  for (int round = 0; round < 5; ++round) {
    for (const fb::MessageT& message : test::one_message_of_each_kind()) {
      frames.push_back(encode(message));
      stream.insert(stream.end(), frames.back().begin(), frames.back().end());
    }
    frames.push_back(encode(test::sample_register_units(100)));
    stream.insert(stream.end(), frames.back().begin(), frames.back().end());
  }
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937_64 random(seed);
    const size_t piece_max = 1 + random() % (seed % 2 == 0 ? 10 : 10'000);
    FrameReader reader;
    size_t received = 0;
    for (size_t at = 0; at < stream.size();) {
      const size_t now = std::min(stream.size() - at, 1 + random() % piece_max);
      reader.append(ByteView(stream).subspan(at, now));
      at += now;
      for (;;) {
        const std::optional<fb::MessageT> message = reader.next().value();
        if (!message) break;
        ASSERT_LT(received, frames.size());
        ASSERT_EQ(encode(*message), frames[received++]);
      }
    }
    EXPECT_EQ(received, frames.size());
  }
}

TEST(FrameReader, StaysBrokenAfterAnError) {
  FrameReader reader;
  std::vector<std::byte> frame = encode(test::sample_hello());
  frame.back() ^= std::byte{1};
  reader.append(frame);
  EXPECT_FALSE(reader.next().ok());
  reader.append(encode(test::sample_hello()));
  EXPECT_FALSE(reader.next().ok());
}

TEST(FrameReader, RefusesForeignProtocolAtOnce) {
  FrameReader reader;
  reader.append(as_bytes("GET / HTTP/1.1\r\n"));
  EXPECT_EQ(reader.next().error().message, "frame: does not start with CKP1");
}

}  // namespace
}  // namespace ckpt::wire
