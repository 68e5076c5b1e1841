// The daemon serves clients of the previous protocol version: recorded frames, byte by byte. Frames
// that name a slab are encoded again if today's daemon leased another slab.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "formats/arena.h"
#include "formats/wire/protocol.h"
#include "tests/support/daemon_process.h"
#include "tests/support/raw_client.h"
#include "tests/support/recorded_frames.h"

namespace ckpt::test {
namespace {

using testing::HasSubstr;

// Sends a recorded client's frames to today's daemon. The answers must be the recorded answers: the
// same kinds of message in the same order, with the same content as far as expect() compares it.
class Replay {
 public:
  explicit Replay(const DaemonProcess& daemon) : daemon_(daemon) {}

  void run(const RecordedConnection& connection) {
    client_ = std::make_unique<RawClient>(daemon_.socket());
    for (const RecordedFrame& frame : connection) {
      frame.from_client ? send(frame) : expect(frame);
      if (testing::Test::HasFailure()) return;
    }
  }
  void hang_up() { client_.reset(); }

 private:
  void send(const RecordedFrame& frame) {
    if (const auto* seal = frame.message.body.AsSealSlab()) {
      fill(*seal);
      if (slab_of(seal->slab) != seal->slab) return send_about_slab(*seal);
    }
    if (const auto* release = frame.message.body.AsReleaseWindow()) {
      if (slab_of(release->slab) != release->slab) return send_about_slab(*release);
    }
    if (!frame.with_fd) return client_->send_bytes(frame.bytes);
    // A kernel that refuses the arena makes the library of then connect again, which works.
    int error = EPERM;
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (error == EPERM && std::chrono::steady_clock::now() < end) {
      error = client_->send_with_fds(frame.bytes, {arena_fd_.get()});
      if (error == EPERM) client_ = std::make_unique<RawClient>(daemon_.socket());
    }
    ASSERT_EQ(error, 0) << std::strerror(error);
  }
  // The recorded trainer filled both units with the number of the step.
  void fill(const fb::SealSlabT& seal) {
    const auto value = static_cast<unsigned char>(seal.step);
    std::memset(arena_.slab(slab_of(seal.slab)).data(), value, seal.payload_bytes);
  }
  // The slab that today's daemon leased in place of the recorded one.
  uint32_t slab_of(uint32_t recorded) const {
    const auto found = slabs_.find(recorded);
    return found == slabs_.end() ? recorded : found->second;
  }
  template <typename Body>
  void send_about_slab(Body body) {
    body.slab = slab_of(body.slab);
    client_->send(std::move(body));
  }
  // Leases are empty until memory is faulted in. Then today's daemon sends a further lease.
  std::optional<fb::MessageT> next_like(const RecordedFrame& frame) {
    const auto* recorded = frame.message.body.AsSlabsLeased();
    while (true) {
      auto answer = client_->next();
      const auto* leased = answer ? answer->body.AsSlabsLeased() : nullptr;
      const bool is_deferred = recorded != nullptr && leased != nullptr && leased->slabs.empty() &&
                               !recorded->slabs.empty();
      if (!is_deferred) return answer;
    }
  }
  void expect(const RecordedFrame& frame) {
    const auto answer = next_like(frame);
    ASSERT_TRUE(answer) << fb::EnumNameMessageBody(frame.message.body.type);
    const auto* error = answer->body.AsErrorReply();
    ASSERT_EQ(answer->body.type, frame.message.body.type) << (error ? error->message : "");
    if (const auto* welcome = answer->body.AsWelcome()) return take(*welcome, frame);
    if (const auto* state = answer->body.AsSnapshotState()) {
      EXPECT_EQ(state->level, frame.message.body.AsSnapshotState()->level) << state->reason;
    }
    if (const auto* leased = answer->body.AsSlabsLeased()) {
      const fb::SlabsLeasedT& recorded = *frame.message.body.AsSlabsLeased();
      ASSERT_EQ(leased->slabs.size(), recorded.slabs.size());
      for (size_t i = 0; i < recorded.slabs.size(); ++i) {
        slabs_[recorded.slabs[i]] = leased->slabs[i];
      }
    }
    if (const auto* window = answer->body.AsRestoreWindow()) {
      const fb::RestoreWindowT& recorded = *frame.message.body.AsRestoreWindow();
      slabs_[recorded.slab] = window->slab;
      ASSERT_EQ(window->pieces.size(), recorded.pieces.size());
      for (size_t i = 0; i < recorded.pieces.size(); ++i) {
        EXPECT_EQ(window->pieces[i].crc32c(), recorded.pieces[i].crc32c());
      }
    }
    if (const auto* reply = answer->body.AsQueryReply()) {
      const fb::QueryReplyT& recorded = *frame.message.body.AsQueryReply();
      EXPECT_EQ(reply->exit_code, recorded.exit_code) << reply->json;
      expect_members(nlohmann::json::parse(reply->json), nlohmann::json::parse(recorded.json));
    }
  }
  // Documents gain members from version to version; none goes or changes.
  static void expect_members(const nlohmann::json& today, const nlohmann::json& recorded) {
    if (recorded.is_object()) {
      for (const auto& [name, value] : recorded.items()) {
        ASSERT_TRUE(today.contains(name)) << name << " in " << today;
        expect_members(today[name], value);
      }
    } else if (recorded.is_array()) {
      ASSERT_EQ(today.size(), recorded.size()) << today;
      for (size_t i = 0; i < recorded.size(); ++i) expect_members(today[i], recorded[i]);
    } else {
      EXPECT_EQ(today, recorded);
    }
  }
  void take(const fb::WelcomeT& welcome, const RecordedFrame& frame) {
    const fb::WelcomeT& recorded = *frame.message.body.AsWelcome();
    EXPECT_EQ(welcome.protocol_version, recorded.protocol_version);
    EXPECT_EQ(welcome.adopted, recorded.adopted) << welcome.server;
    if (!frame.with_fd) return;
    arena_fd_ = client_->take_fd();
    auto mapped = ArenaMapping::map(arena_fd_.get(), {welcome.slab_bytes, welcome.slab_count});
    ASSERT_TRUE(mapped.ok()) << mapped.error().message;
    arena_ = std::move(mapped).value();
  }

  const DaemonProcess& daemon_;
  std::unique_ptr<RawClient> client_;
  base::UniqueFd arena_fd_;
  ArenaMapping arena_;
  std::map<uint32_t, uint32_t> slabs_;  // recorded -> leased today
};

TEST(OlderClient, SavesReconnectsAndRestoresAsRecorded) {
  DaemonProcess daemon({"--arena", "64MiB", "--warm-pool", "0"});
  Replay trainer(daemon);
  const auto connections = recorded_connections("version2_trainer");
  ASSERT_EQ(connections.size(), 2u);
  trainer.run(connections[0]);
  ASSERT_FALSE(testing::Test::HasFailure());
  daemon.crash_and_restart();
  trainer.run(connections[1]);
  ASSERT_FALSE(testing::Test::HasFailure());
  trainer.hang_up();
  for (const auto& connection : recorded_connections("version2_control")) {
    Replay(daemon).run(connection);
  }
}

// The answer of ckptd to a control session that speaks these versions.
fb::MessageT greet(const DaemonProcess& daemon, wire::ProtocolRange range) {
  RawClient client(daemon.socket());
  fb::HelloT hello;
  hello.kind = fb::SessionKind::Control;
  wire::offer(range, hello);
  client.send(std::move(hello));
  const auto answer = client.next();
  EXPECT_TRUE(answer.has_value());
  return answer.value_or(fb::MessageT());
}

TEST(OlderClient, BothSidesUseTheHighestSharedVersion) {
  const DaemonProcess daemon({"--arena", "64MiB"});
  const uint32_t newest = wire::kProtocolVersion;
  for (const wire::ProtocolRange range : {wire::ProtocolRange{1, newest - 1},
                                          {newest - 1, newest - 1},
                                          {newest - 1, newest},
                                          {newest, newest + 7}}) {
    const fb::MessageT answer = greet(daemon, range);
    ASSERT_EQ(answer.body.type, fb::MessageBody::Welcome) << wire::to_text(range);
    EXPECT_EQ(answer.body.AsWelcome()->protocol_version, std::min(newest, range.max));
  }
}

TEST(OlderClient, NoSharedVersionNamesBothRangesAndRemedy) {
  const DaemonProcess daemon({"--arena", "64MiB"});
  const uint32_t newest = wire::kProtocolVersion;
  const auto refusal = [&](wire::ProtocolRange range) {
    const fb::MessageT answer = greet(daemon, range);
    const auto* error = answer.body.AsErrorReply();
    if (error == nullptr) return std::string("not refused");
    EXPECT_EQ(error->code, static_cast<int>(ErrorCode::kVersionMismatch));
    EXPECT_THAT(error->message, HasSubstr("ckptd speaks " + wire::to_text({})));
    return error->message;
  };
  EXPECT_THAT(refusal({newest + 1, newest + 2}),
              HasSubstr(fmt::format("the client {} to {}; upgrade ckptd", newest + 1, newest + 2)));
  EXPECT_THAT(refusal({1, 1}), HasSubstr("the client 1; upgrade the client (libckpt)"));
  EXPECT_THAT(refusal({newest, 1}), HasSubstr("upgrade the client (libckpt)"));
  // A library older than the ranges says one number only.
  RawClient first(daemon.socket());
  fb::HelloT hello;
  hello.protocol_version = 1;
  first.send(std::move(hello));
  const auto answer = first.next();
  ASSERT_TRUE(answer && answer->body.AsErrorReply() != nullptr);
  EXPECT_THAT(answer->body.AsErrorReply()->message, HasSubstr("the client 1; upgrade the client"));
}

}  // namespace
}  // namespace ckpt::test
