// libckpt works with a daemon of the protocol version before its own: recorded answers, byte by
// byte.
#include <cstring>

#include "formats/wire/protocol.h"
#include "tests/client/client_fixture.h"
#include "tests/client/fake_daemon.h"
#include "tests/support/recorded_frames.h"

namespace ckpt::test {
namespace {

// Answers each message of the client with what the recorded daemon answered. The client must say
// the same kinds of message in the same order as the client of then.
class RecordedAnswers {
 public:
  explicit RecordedAnswers(const std::string& name) : connections_(recorded_connections(name)) {}

  bool answer(FakeDaemon::Peer& peer, const fb::MessageT& message) {
    const RecordedConnection& recorded = connections_.at(connection_);
    EXPECT_TRUE(recorded.at(at_).from_client);
    EXPECT_EQ(message.body.type, recorded[at_].message.body.type)
        << fb::EnumNameMessageBody(message.body.type)
        << ", recorded: " << fb::EnumNameMessageBody(recorded[at_].message.body.type);
    ++at_;
    for (; at_ < recorded.size() && !recorded[at_].from_client; ++at_) {
      if (const auto* window = recorded[at_].message.body.AsRestoreWindow()) {
        std::memset(arena_.mapping.slab(window->slab).data(), 2, kUnitBytes);
      }
      if (const auto* welcome = recorded[at_].message.body.AsWelcome(); recorded[at_].with_fd) {
        arena_ = ArenaMapping::create({welcome->slab_bytes, welcome->slab_count}).value();
      }
      peer.send_bytes(recorded[at_].bytes, recorded[at_].with_fd ? arena_.fd.get() : -1);
    }
    if (at_ < recorded.size()) return true;
    // The recorded daemon was killed here.
    peer.hang_up();
    at_ = 0;
    ++connection_;
    return true;
  }
  bool all_said() const { return connection_ > 0; }  // up to the kill of the recorded daemon

  static constexpr uint64_t kUnitBytes = 4096;

 private:
  const std::vector<RecordedConnection> connections_;
  size_t connection_ = 0;
  size_t at_ = 0;
  ArenaMapping::Created arena_;
};

client::Outcome<void> save(client::Session& session, uint64_t step) {
  constexpr uint64_t kBytes = RecordedAnswers::kUnitBytes;
  const std::vector<char> bytes(kBytes, static_cast<char>(step));
  client::SnapshotOptions plan;
  plan.step = step;
  plan.units = {0, 1};
  plan.fragments = {{0, 0, 0, kBytes}, {0, 1, 0, kBytes}};
  auto snapshot = session.begin(plan);
  if (!snapshot) return snapshot.error();
  for (uint32_t unit = 0; unit < 2; ++unit) {
    if (auto written = snapshot->write(unit, 0, bytes.data(), kBytes); !written) return written;
  }
  if (auto ended = snapshot->end(); !ended) return ended;
  return snapshot->wait(CKPT_LEVEL_DURABLE, 60'000);
}

TEST(OlderDaemon, SavesAsRecorded) {
  const TempFolder folder;
  RecordedAnswers recorded("version2_trainer");
  {
    const FakeDaemon daemon(folder.path("ckptd.sock"), {},
                            [&](FakeDaemon::Peer& peer, const fb::MessageT& message) {
                              return recorded.answer(peer, message);
                            });
    client::OpenOptions options;
    options.socket = folder.path("ckptd.sock");
    options.run = "tiny";
    options.arena_bytes = 256 << 10;
    options.slab_bytes = 64 << 10;
    auto session = client::Session::open(options);
    ASSERT_OK(session);
    std::vector<client::UnitInfo> units;
    for (int i = 0; i < 2; ++i) {
      const std::string name = "layers." + std::to_string(i);
      units.push_back({name, i, -1, "", 4096, {{name + ".w", "F32", {1024}, 0}}});
    }
    ASSERT_OK(session->register_units(units));
    ASSERT_OK(session->join({}));
    ASSERT_OK(save(*session, 1));
  }
  EXPECT_TRUE(recorded.all_said());
}

TEST(OlderDaemon, TwoVersionsBackIsRefusedWithTheRemedy) {
  const TempFolder folder;
  const FakeDaemon daemon(folder.path("ckptd.sock"),
                          {.protocol_version = wire::kProtocolVersionMin - 1});
  client::OpenOptions options;
  options.socket = folder.path("ckptd.sock");
  options.run = "tiny";
  const auto session = client::Session::open(options);
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().status, CKPT_E_VERSION_MISMATCH);
  EXPECT_NE(session.error().message.find("ckptd speaks 1, the client 2 to 3; upgrade ckptd"),
            std::string::npos)
      << session.error().message;
}

}  // namespace
}  // namespace ckpt::test
