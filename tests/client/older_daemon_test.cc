// libckpt works with a daemon of the previous protocol version. The daemon's answers are recorded
// bytes; a request number is replaced if the client numbers its requests differently. The client's
// messages are compared by kind, order and content.
#include <cstring>
#include <map>

#include "formats/wire/protocol.h"
#include "tests/client/client_fixture.h"
#include "tests/client/fake_daemon.h"
#include "tests/support/recorded_frames.h"

namespace ckpt::test {
namespace {

// Calls `visit` with the request number of the message, a request or an answer.
template <typename Visit>
void visit_request(fb::MessageBodyUnion& body, Visit&& visit) {
  const auto in = [&visit](auto* table) {
    if (table != nullptr) visit(table->request);
  };
  in(body.AsRegisterUnits());
  in(body.AsJoinGroup());
  in(body.AsRejoinEpoch());
  in(body.AsLeaveGroup());
  in(body.AsBeginSnapshot());
  in(body.AsSealSlab());
  in(body.AsOpenRestore());
  in(body.AsCloseRestore());
  in(body.AsDone());
  in(body.AsEpochStarted());
  in(body.AsSlabsLeased());
  in(body.AsRestoreOpened());
}

uint64_t request_of(fb::MessageT message) {
  uint64_t request = 0;
  visit_request(message.body, [&request](uint64_t number) { request = number; });
  return request;
}

// Answers each message of the client with the recorded daemon's answer. The client must send the
// same kinds of message in the same order as the recorded client.
class RecordedAnswers {
 public:
  explicit RecordedAnswers(const std::string& name) : connections_(recorded_connections(name)) {}

  bool answer(FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (script_done()) {
      ADD_FAILURE() << "not recorded: " << fb::EnumNameMessageBody(message.body.type);
      peer.hang_up();
      return true;
    }
    const RecordedConnection& recorded = connections_.at(connection_);
    EXPECT_TRUE(recorded.at(at_).from_client);
    EXPECT_EQ(message.body.type, recorded[at_].message.body.type)
        << fb::EnumNameMessageBody(message.body.type)
        << ", recorded: " << fb::EnumNameMessageBody(recorded[at_].message.body.type);
    expect_same(message, recorded[at_].message);
    requests_[request_of(recorded[at_].message)] = request_of(message);
    ++at_;
    for (; at_ < recorded.size() && !recorded[at_].from_client; ++at_) {
      if (const auto* window = recorded[at_].message.body.AsRestoreWindow()) {
        std::memset(arena_.mapping.slab(window->slab).data(), 2, kUnitBytes);
      }
      if (const auto* welcome = recorded[at_].message.body.AsWelcome(); recorded[at_].with_fd) {
        arena_ = ArenaMapping::create({welcome->slab_bytes, welcome->slab_count}).value();
      }
      send(peer, recorded[at_]);
    }
    if (at_ < recorded.size()) return true;
    // The recorded daemon was killed here, or the trainer had left.
    peer.hang_up();
    at_ = 0;
    ++connection_;
    requests_.clear();
    return true;
  }
  bool script_done() const { return connection_ == connections_.size(); }

  static constexpr uint64_t kUnitBytes = 4096;

 private:
  void send(FakeDaemon::Peer& peer, const RecordedFrame& frame) const {
    fb::MessageT answer = frame.message;
    bool renumbered = false;
    visit_request(answer.body, [&](uint64_t& request) {
      const auto said = requests_.find(request);
      renumbered = said != requests_.end() && said->second != request;
      if (renumbered) request = said->second;
    });
    if (renumbered) return peer.send_bytes(wire::encode(answer));
    peer.send_bytes(frame.bytes, frame.with_fd ? arena_.fd.get() : -1);
  }
  // Compares the fields that the recorded daemon relied on.
  static void expect_same(const fb::MessageT& said, const fb::MessageT& recorded) {
    if (said.body.type != recorded.body.type) return;
    if (const auto* hello = said.body.AsHello()) {
      EXPECT_EQ(hello->protocol_version, recorded.body.AsHello()->protocol_version);
      EXPECT_EQ(hello->readopt, recorded.body.AsHello()->readopt);
      EXPECT_EQ(hello->run, recorded.body.AsHello()->run);
    }
    if (const auto* rejoin = said.body.AsRejoinEpoch()) {
      EXPECT_EQ(rejoin->epoch, recorded.body.AsRejoinEpoch()->epoch);
      EXPECT_EQ(rejoin->rank, recorded.body.AsRejoinEpoch()->rank);
    }
    if (const auto* begin = said.body.AsBeginSnapshot()) {
      EXPECT_EQ(begin->step, recorded.body.AsBeginSnapshot()->step);
    }
    if (const auto* seal = said.body.AsSealSlab()) {
      const fb::SealSlabT& then = *recorded.body.AsSealSlab();
      EXPECT_EQ(seal->slab, then.slab);
      EXPECT_EQ(seal->payload_bytes, then.payload_bytes);
      ASSERT_EQ(seal->fragments.size(), then.fragments.size());
      for (size_t i = 0; i < then.fragments.size(); ++i) {
        EXPECT_EQ(seal->fragments[i].crc32c(), then.fragments[i].crc32c());
      }
    }
    if (const auto* release = said.body.AsReleaseWindow()) {
      EXPECT_EQ(release->slab, recorded.body.AsReleaseWindow()->slab);
    }
  }

  const std::vector<RecordedConnection> connections_;
  size_t connection_ = 0;
  size_t at_ = 0;
  std::map<uint64_t, uint64_t> requests_;  // recorded number -> current number, by connection
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
  auto durable = snapshot->wait(CKPT_LEVEL_DURABLE, 60'000);
  const client::SnapshotTimings timings = snapshot->info().timings;
  EXPECT_EQ(timings.write_ns + timings.sync_ns + timings.journal_ns, 0u) << "it tells no timings";
  return durable;
}

TEST(OlderDaemon, SavesReconnectsAndRestoresAsRecorded) {
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
    // The recorded daemon was killed here and started again: the arena goes back with Hello.
    ASSERT_OK(save(*session, 2));
    std::vector<char> restored(RecordedAnswers::kUnitBytes);
    client::RestoreOptions view;
    view.run = "tiny";
    view.latest = true;
    ckpt_range range{};
    range.unit = 0;
    range.length = restored.size();
    range.data = restored.data();
    ASSERT_OK(session->restore(view, {range}));
    EXPECT_EQ(restored, std::vector<char>(RecordedAnswers::kUnitBytes, 2));
    ASSERT_OK(session->leave());
  }
  EXPECT_TRUE(recorded.script_done());
}

TEST(OlderDaemon, UnsupportedVersionIsRefusedWithRemedy) {
  const TempFolder folder;
  const FakeDaemon daemon(folder.path("ckptd.sock"),
                          {.protocol_version = wire::kProtocolVersionMin - 1});
  client::OpenOptions options;
  options.socket = folder.path("ckptd.sock");
  options.run = "tiny";
  const auto session = client::Session::open(options);
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().status, CKPT_E_VERSION_MISMATCH);
  EXPECT_NE(session.error().message.find("ckptd speaks 1, the client 2 to 5; upgrade ckptd"),
            std::string::npos)
      << session.error().message;
}

}  // namespace
}  // namespace ckpt::test
