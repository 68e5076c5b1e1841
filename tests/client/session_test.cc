// An open session, against a daemon made of answers: reconnects, heartbeats, timeouts.
#include <atomic>
#include <chrono>

#include "tests/client/session_fixture.h"

namespace ckpt::test {
namespace {

using client::OpenOptions;
using client::Session;

TEST_F(SessionTest, OversizedMessageIsRefusedAndSessionContinues) {
  FakeDaemon daemon(socket_, FakeDaemon::Options{});
  auto session = Session::open(options());
  ASSERT_TRUE(session);
  client::UnitInfo unit;
  unit.name = "state";
  unit.bytes = 4096;
  const std::string metadata(33u << 20, ' ');
  const auto refused = session->register_units({unit}, metadata);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, CKPT_E_INVALID_ARGUMENT);
  EXPECT_NE(refused.error().message.find("registering 1 unit: message"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(session->register_units({unit}));
}

TEST_F(SessionTest, ReconnectKeepsArenaAndResendsKeys) {
  auto daemon = std::make_unique<FakeDaemon>(socket_, FakeDaemon::Options{});
  auto session = Session::open(options());
  ASSERT_OK(session);
  uint64_t bytes = 0;
  void* arena = ckpt_arena(session->handle(), &bytes);
  ASSERT_OK(session->register_units({flat_unit("a", 100)}));
  ASSERT_OK(session->join({.rank = 0, .size = 1}));
  ASSERT_OK(session->kv_set("address", "here"));
  daemon.reset();
  ASSERT_OK(session->poll(0));
  EXPECT_EQ(session->fd(), -1);

  daemon = std::make_unique<FakeDaemon>(socket_, FakeDaemon::Options{});
  ASSERT_OK(session->kv_set("more", "x"));  // reconnects
  EXPECT_EQ(daemon->types(), (std::vector{fb::MessageBody::Hello, fb::MessageBody::RegisterUnits,
                                          fb::MessageBody::RejoinEpoch, fb::MessageBody::KvSet,
                                          fb::MessageBody::KvSet}));
  EXPECT_TRUE(daemon->wait_for(fb::MessageBody::Hello, 1)[0].body.AsHello()->readopt);
  EXPECT_EQ(daemon->wait_for(fb::MessageBody::KvSet, 1)[0].body.AsKvSet()->key, "address");
  uint64_t bytes_after = 0;
  EXPECT_EQ(ckpt_arena(session->handle(), &bytes_after), arena);
  EXPECT_EQ(bytes_after, bytes);
}

// A daemon learns flags from registrations only, so a reconnect sends all of them again.
TEST_F(SessionTest, ZerosClearFlagsAndCodecs) {
  auto daemon = std::make_unique<FakeDaemon>(socket_, FakeDaemon::Options{});
  auto session = Session::open(options());
  ASSERT_OK(session);
  client::UnitInfo unit = flat_unit("a", 100);
  const auto flags_of_message = [&](size_t at) {
    const auto messages = daemon->wait_for(fb::MessageBody::RegisterUnits, at + 1);
    return messages.at(at).body.AsRegisterUnits()->flags;
  };
  const auto codecs_of_message = [&](size_t at) {
    const auto messages = daemon->wait_for(fb::MessageBody::RegisterUnits, at + 1);
    return messages.at(at).body.AsRegisterUnits()->codecs;
  };
  unit.flags = CKPT_UNIT_CONSTANT;
  unit.codec = CKPT_CODEC_ZSTD;
  ASSERT_OK(session->register_units({unit}));
  EXPECT_EQ(flags_of_message(0), std::vector<uint32_t>{1});
  EXPECT_EQ(codecs_of_message(0), std::vector{fb::UnitCodec::Zstd});
  unit.flags = 0;
  unit.codec = CKPT_CODEC_DEFAULT;
  ASSERT_OK(session->register_units({unit}));
  EXPECT_EQ(flags_of_message(1), std::vector<uint32_t>{0}) << "an empty list clears nothing";
  EXPECT_EQ(codecs_of_message(1), std::vector{fb::UnitCodec::Default});
  unit.flags = CKPT_UNIT_CONSTANT;
  ASSERT_OK(session->register_units({unit}));
  const ckpt_unit plain{"a", -1, -1, nullptr, 100, nullptr, 0};
  ASSERT_EQ(ckpt_register_units(session->handle(), &plain, 1, nullptr, 60'000), CKPT_OK);
  EXPECT_TRUE(flags_of_message(3).empty());

  daemon.reset();
  ASSERT_OK(session->poll(0));
  daemon = std::make_unique<FakeDaemon>(socket_, FakeDaemon::Options{});
  ASSERT_OK(session->join({.rank = 0, .size = 1}));  // reconnects
  EXPECT_EQ(flags_of_message(0), std::vector<uint32_t>{1});
}

TEST_F(SessionTest, EpochUnknownToNewDaemonHasEnded) {
  auto daemon = std::make_unique<FakeDaemon>(socket_, FakeDaemon::Options{});
  auto session = Session::open(options());
  ASSERT_OK(session);
  ASSERT_OK(session->register_units({flat_unit("a", 100)}));
  ASSERT_OK(session->join({.rank = 0, .size = 1}));
  daemon.reset();
  daemon = std::make_unique<FakeDaemon>(socket_, FakeDaemon::Options{},
                                        [](FakeDaemon::Peer& peer, const fb::MessageT& message) {
                                          if (message.body.type != fb::MessageBody::RejoinEpoch)
                                            return false;
                                          fb::ErrorReplyT refusal;
                                          refusal.request = message.body.AsRejoinEpoch()->request;
                                          refusal.code = static_cast<int>(ErrorCode::kNotFound);
                                          refusal.message = "run tiny: no epoch 1";
                                          peer.send(std::move(refusal));
                                          return true;
                                        });
  const auto set = session->kv_set("k", "v");
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().status, CKPT_E_ABORTED);
  ASSERT_TRUE(session->epoch_ended());
  EXPECT_TRUE(session->epoch_ended()->empty());
}

TEST_F(SessionTest, LostRanksAreNamed) {
  FakeDaemon daemon(socket_, {}, [](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (message.body.type != fb::MessageBody::KvGet) return false;
    fb::EpochEndedT ended;
    ended.epoch = 1;
    ended.lost_ranks = {2};
    ended.reason = "its process ended";
    peer.send(std::move(ended));
    return true;
  });
  auto session = Session::open(options());
  ASSERT_OK(session);
  ASSERT_OK(session->register_units({flat_unit("a", 100)}));
  ASSERT_OK(session->join({.rank = 0, .size = 4}));
  const auto value = session->kv_get("never", 20'000);
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().status, CKPT_E_ABORTED);
  EXPECT_NE(value.error().message.find("lost rank 2"), std::string::npos) << value.error().message;
  EXPECT_EQ(session->epoch_ended(), std::vector<uint32_t>{2});
}

TEST_F(SessionTest, HeartbeatsDetectHungDaemon) {
  std::atomic<bool> hangs = false;
  FakeDaemon daemon(socket_, {}, [&](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    const fb::QueryT* ping = message.body.AsQuery();
    if (ping == nullptr) return false;
    EXPECT_EQ(ping->verb, "ping");
    fb::QueryReplyT reply;
    reply.request = ping->request;
    reply.json = "{}";
    if (!hangs) peer.send(std::move(reply));
    return true;
  });
  OpenOptions beating = options();
  beating.heartbeat_ms = 1;
  auto session = Session::open(beating);
  ASSERT_OK(session);
  ASSERT_TRUE(polls_until(*session,
                          [&] { return daemon.wait_for(fb::MessageBody::Query, 0).size() >= 3; }));
  hangs = true;
  ASSERT_TRUE(polls_until(*session, [&] { return session->silence_ms() >= 20; }));
  EXPECT_GE(session->fd(), 0) << "the connection is there all the same";
}

// The first heartbeat is sent at once. The daemon answers it only when the second query arrives.
TEST_F(SessionTest, TimeoutDoesNotBlameDaemonTooEarly) {
  uint64_t heartbeat = 0;
  size_t questions = 0;
  FakeDaemon daemon(socket_, {}, [&](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    const fb::QueryT* question = message.body.AsQuery();
    if (question == nullptr) return false;
    if (question->verb == "ping") {
      heartbeat = question->request;
    } else if (++questions == 2) {
      fb::QueryReplyT reply;
      reply.request = heartbeat;
      reply.json = "{}";
      peer.send(std::move(reply));
    }
    return true;
  });
  OpenOptions beating = options();
  beating.heartbeat_ms = 30'000;
  auto session = Session::open(beating);
  ASSERT_OK(session);
  ASSERT_TRUE(polls_until(*session, [&] { return session->silence_ms() > 0; }));
  const auto early = session->query("status", "{}", 20);
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().message, "status: not done in time");
  ASSERT_FALSE(session->query("status", "{}", 20));
  ASSERT_TRUE(polls_until(*session, [&] { return session->silence_ms() == 0; }));
}

TEST_F(SessionTest, TimeoutNamesHungDaemon) {
  FakeDaemon daemon(socket_, {}, [](FakeDaemon::Peer&, const fb::MessageT& message) {
    return message.body.type == fb::MessageBody::Query;
  });
  OpenOptions beating = options();
  beating.heartbeat_ms = 1;
  auto session = Session::open(beating);
  ASSERT_OK(session);
  ASSERT_TRUE(polls_until(*session, [&] { return session->silence_ms() >= 1'000; }));
  const auto answer = session->query("status", "{}", 20);
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().message.find("socket " + socket_ + ": ckptd has not answered for "),
            std::string::npos)
      << answer.error().message;
}

TEST_F(SessionTest, InterruptedCallsEndLongBeforeTheirDeadline) {
  FakeDaemon daemon(socket_, {}, [](FakeDaemon::Peer&, const fb::MessageT& message) {
    return message.body.type == fb::MessageBody::Query ||
           message.body.type == fb::MessageBody::OpenRestore;
  });
  bool wanted = false;
  OpenOptions interruptible = options();
  interruptible.interrupted = [](void* context) { return *static_cast<bool*>(context) ? 1 : 0; };
  interruptible.interrupted_context = &wanted;
  auto session = Session::open(interruptible);
  ASSERT_OK(session);
  wanted = true;
  const auto answer = session->query("status", "{}", 60'000);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().status, CKPT_E_ABORTED) << answer.error().message;
  std::byte to{};
  const auto restored = session->restore({.latest = true, .timeout_ms = 60'000}, {{0, 0, 1, &to}});
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().status, CKPT_E_ABORTED) << restored.error().message;
  const auto none = Session::open([&] {
    OpenOptions unreachable = interruptible;
    unreachable.socket = folder_.path("none");
    return unreachable;
  }());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().status, CKPT_E_ABORTED) << none.error().message;
}

TEST_F(SessionTest, JoinEndsAtDeadlineDespiteUnansweredQuery) {
  FakeDaemon daemon(socket_, {}, [](FakeDaemon::Peer&, const fb::MessageT& message) {
    return message.body.type == fb::MessageBody::Query ||
           message.body.type == fb::MessageBody::JoinGroup;
  });
  auto session = Session::open(options());
  ASSERT_OK(session);
  ASSERT_OK(session->register_units({flat_unit("a", 100)}));
  const auto began = std::chrono::steady_clock::now();
  const auto joined = session->join({.rank = 0, .size = 2, .timeout_ms = 200});
  const auto waited = std::chrono::steady_clock::now() - began;
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().status, CKPT_E_DEADLINE_EXCEEDED);
  EXPECT_LT(waited, std::chrono::milliseconds(900)) << "a question of its own may take 1 s";
  daemon.wait_for(fb::MessageBody::LeaveGroup, 1);
}

TEST_F(SessionTest, JoinTimeoutGivesReasonOfDaemon) {
  FakeDaemon daemon(socket_, {}, [](FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (const fb::QueryT* question = message.body.AsQuery()) {
      fb::QueryReplyT reply;
      reply.request = question->request;
      reply.json = R"({"reason":"rank 1 is missing"})";
      peer.send(std::move(reply));
      return true;
    }
    return message.body.type == fb::MessageBody::JoinGroup;
  });
  auto session = Session::open(options());
  ASSERT_OK(session);
  ASSERT_OK(session->register_units({flat_unit("a", 100)}));
  const auto joined = session->join({.rank = 0, .size = 2, .timeout_ms = 2'000});
  ASSERT_FALSE(joined);
  EXPECT_NE(joined.error().message.find("rank 1 is missing"), std::string::npos)
      << joined.error().message;
}

TEST_F(SessionTest, UnansweredCallEndsAtDeadline) {
  FakeDaemon daemon(socket_, {}, [](FakeDaemon::Peer&, const fb::MessageT& message) {
    return message.body.type == fb::MessageBody::Query;
  });
  auto session = Session::open(options());
  ASSERT_OK(session);
  const auto answer = session->query("status", "{}", 20);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().status, CKPT_E_DEADLINE_EXCEEDED);
}

}  // namespace
}  // namespace ckpt::test
