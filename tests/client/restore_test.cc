// Restores against a daemon whose windows may be wrong.
#include "ckpt/ckpt_windows.h"
#include "formats/base/crc32c.h"
#include "tests/client/client_fixture.h"
#include "tests/client/fake_daemon.h"

namespace ckpt::test {
namespace {

using client::Session;

constexpr uint64_t kRestore = 77;

class RestoreTest : public testing::Test {
 protected:
  RestoreTest() : bytes_(random_bytes(1000, 1)), older_(random_bytes(1000, 2)), into_(1000) {}

  // Answers OpenRestore with one want of step 1200, then whatever `windows` sends.
  void start(std::function<void(FakeDaemon::Peer&)> windows) {
    windows_ = std::move(windows);
    daemon_ =
        std::make_unique<FakeDaemon>(socket_, FakeDaemon::Options{},
                                     [this](FakeDaemon::Peer& peer, const fb::MessageT& message) {
                                       return serve(peer, message);
                                     });
    client::OpenOptions options;
    options.socket = socket_;
    options.run = "tiny";
    auto session = Session::open(options);
    ASSERT_OK(session);
    session_.emplace(std::move(session).value());
    ASSERT_OK(session_->register_units({flat_unit("layers.0", 1000)}));
  }
  bool serve(FakeDaemon::Peer& peer, const fb::MessageT& message) {
    if (const auto* query = message.body.AsQuery()) {
      answer(peer);  // the restore, at last
      fb::QueryReplyT reply;
      reply.request = query->request;
      peer.send(std::move(reply));
      return true;
    }
    if (message.body.type != fb::MessageBody::OpenRestore) return false;
    request_ = message.body.AsOpenRestore()->request;
    ++opened_;
    if (opened_ != silent_) {
      answer(peer);
    } else if (refusal_) {
      fb::ErrorReplyT refusal;
      refusal.request = request_;
      refusal.code = static_cast<int>(*refusal_);
      peer.send(std::move(refusal));
    }
    return true;
  }
  void answer(FakeDaemon::Peer& peer) {
    fb::RestoreOpenedT opened;
    opened.request = request_;
    opened.restore = kRestore;
    opened.units.push_back(std::make_unique<fb::RestoredUnitT>());
    opened.units[0]->version_lineage = 1;
    opened.units[0]->version_step = 1200;
    peer.send(std::move(opened));
    windows_(peer);
  }
  // A window with bytes [offset, offset + length) of `from`.
  fb::RestoreWindowT window(const std::vector<char>& from, uint64_t offset, uint64_t length,
                            bool last, uint32_t slab_index = 3) {
    const auto bytes = as_bytes({from.data() + offset, length});
    const MutableByteView slab = daemon_->slab(slab_index);
    std::copy(bytes.begin(), bytes.end(), slab.begin() + static_cast<ptrdiff_t>(offset));
    fb::RestoreWindowT window;
    window.restore = kRestore;
    window.slab = slab_index;
    window.last = last;
    window.pieces.emplace_back(0, 0, offset, length, offset, base::crc32c(bytes), 0);
    return window;
  }
  client::Outcome<std::vector<client::Restored>> restore() {
    client::RestoreOptions options;
    options.step = 1200;
    options.timeout_ms = timeout_ms_;
    return session_->restore(options, {{0, 0, into_.size(), into_.data()}});
  }

  std::vector<char> bytes_;
  std::vector<char> older_;
  std::vector<char> into_;
  uint32_t timeout_ms_ = 20'000;
  uint64_t request_ = 0;
  int opened_ = 0;   // restores, by the daemon
  int silent_ = -1;  // this one gets no answer, or this one
  std::optional<ErrorCode> refusal_;
  TempFolder folder_;
  std::string socket_ = folder_.path("ckptd.sock");
  std::function<void(FakeDaemon::Peer&)> windows_;
  std::unique_ptr<FakeDaemon> daemon_;
  std::optional<Session> session_;
};

TEST_F(RestoreTest, WindowsAreCopiedAndReleased) {
  start([this](FakeDaemon::Peer& peer) {
    peer.send(window(bytes_, 0, 600, false));
    peer.send(window(bytes_, 600, 400, true));
  });
  const auto restored = restore();
  ASSERT_OK(restored);
  EXPECT_EQ(into_, bytes_);
  EXPECT_EQ((*restored)[0].version.step, 1200u);
  EXPECT_EQ((*restored)[0].bytes_memory, 1000u);
  daemon_->wait_for(fb::MessageBody::ReleaseWindow, 2);
  daemon_->wait_for(fb::MessageBody::CloseRestore, 1);
}

TEST_F(RestoreTest, WrongByteIsDetected) {
  start([this](FakeDaemon::Peer& peer) {
    auto lie = window(bytes_, 0, 1000, true);
    daemon_->slab(3)[500] ^= std::byte{1};
    peer.send(std::move(lie));
  });
  const auto restored = restore();
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().status, CKPT_E_CORRUPT);
  EXPECT_NE(restored.error().message.find("unit layers.0"), std::string::npos);
  EXPECT_EQ(opened_, 2) << "it is read again, once";
}

TEST_F(RestoreTest, WrongByteIsReread) {
  start([this](FakeDaemon::Peer& peer) {
    auto once = window(bytes_, 0, 1000, true);
    if (opened_ == 1) daemon_->slab(3)[500] ^= std::byte{1};
    peer.send(std::move(once));
  });
  ASSERT_OK(restore());
  EXPECT_EQ(into_, bytes_);
  EXPECT_EQ(opened_, 2);
}

TEST_F(RestoreTest, BytesLeftOutAreNoticed) {
  start([this](FakeDaemon::Peer& peer) { peer.send(window(bytes_, 0, 999, true)); });
  const auto restored = restore();
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().status, CKPT_E_CORRUPT);
}

TEST_F(RestoreTest, PiecesOutsideRangeOrArenaAreRefused) {
  for (int lie = 0; lie < 5; ++lie) {
    start([this, lie](FakeDaemon::Peer& peer) {
      auto wrong = window(bytes_, 0, 1000, true);
      const fb::RestoredPiece good = wrong.pieces[0];
      const auto piece = [&](uint32_t want, uint32_t unit, uint64_t offset, uint64_t slab_offset) {
        return fb::RestoredPiece(want, unit, offset, 1000, slab_offset, good.crc32c(), 0);
      };
      if (lie == 0) wrong.pieces[0] = piece(1, 0, 0, 0);
      if (lie == 1) wrong.pieces[0] = piece(0, 1, 0, 0);
      if (lie == 2) wrong.pieces[0] = piece(0, 0, UINT64_MAX, 0);
      if (lie == 3) wrong.pieces[0] = piece(0, 0, 0, UINT64_MAX - 10);
      if (lie == 4) wrong.slab = 1'000'000;
      peer.send(std::move(wrong));
    });
    const auto restored = restore();
    ASSERT_FALSE(restored) << "lie " << lie;
    EXPECT_EQ(restored.error().status, CKPT_E_CORRUPT);
    session_.reset();
    daemon_->stop();
    daemon_.reset();
  }
}

TEST_F(RestoreTest, OlderVersionReplacesEarlierBytes) {
  start([this](FakeDaemon::Peer& peer) {
    peer.send(window(bytes_, 0, 600, false, 4));
    auto fallback = window(older_, 0, 1000, true);
    fallback.notes.push_back(std::make_unique<fb::RestoreNoteT>());
    fallback.notes[0]->version_lineage = 1;
    fallback.notes[0]->version_step = 1100;
    fallback.notes[0]->note = "step 1200 is damaged";
    peer.send(std::move(fallback));
  });
  const auto restored = restore();
  ASSERT_OK(restored);
  EXPECT_EQ(into_, older_);
  EXPECT_EQ((*restored)[0].version.step, 1100u);
  EXPECT_EQ((*restored)[0].note, "step 1200 is damaged");
}

TEST_F(RestoreTest, ReturnsErrorSentAfterFirstWindow) {
  start([this](FakeDaemon::Peer& peer) {
    peer.send(window(bytes_, 0, 600, false));
    fb::ErrorReplyT error;
    error.request = request_;
    error.code = static_cast<int>(ErrorCode::kCorrupt);
    error.message = "run tiny step 1200 unit layers.0: no version holds";
    peer.send(std::move(error));
  });
  const auto restored = restore();
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().message, "run tiny step 1200 unit layers.0: no version holds");
}

TEST_F(RestoreTest, StartsOverWithTheNextConnection) {
  start([this](FakeDaemon::Peer& peer) {
    if (opened_ == 1) {
      peer.send(window(bytes_, 0, 600, false));
      peer.hang_up();
    } else {
      peer.send(window(bytes_, 0, 1000, true));
    }
  });
  const auto restored = restore();
  ASSERT_OK(restored);
  EXPECT_EQ(into_, bytes_);
  EXPECT_EQ(opened_, 2);
}

TEST_F(RestoreTest, SilenceEndsAtTheTimeout) {
  start([](FakeDaemon::Peer&) {});
  timeout_ms_ = 20;
  const auto restored = restore();
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().status, CKPT_E_DEADLINE_EXCEEDED);
}

// Restores whose windows the caller copies one by one.
class WindowsTest : public RestoreTest {
 protected:
  void TearDown() override { ckpt_restore_free(restore_); }
  ckpt_status begin() {
    ckpt_restore_options options{};
    options.struct_size = sizeof options;
    options.step = 1200;
    options.timeout_ms = timeout_ms_;
    const ckpt_range range{0, 0, 1000, nullptr};
    return ckpt_restore_begin(session_->handle(), &options, &range, 1, &restore_);
  }
  ckpt_restore_window next(uint32_t timeout_ms = 20'000) {
    ckpt_restore_window window{};
    window.struct_size = sizeof window;
    EXPECT_EQ(ckpt_restore_next(restore_, timeout_ms, &window), CKPT_OK)
        << ckpt_session_error(session_->handle());
    for (size_t i = 0; i < window.piece_count; ++i) {
      const ckpt_restore_piece& piece = window.pieces[i];
      EXPECT_EQ(piece.range, 0u);
      std::memcpy(into_.data() + piece.offset, static_cast<const char*>(window.data) + piece.at,
                  piece.length);
    }
    return window;
  }
  ckpt_restore* restore_ = nullptr;
};

TEST_F(WindowsTest, AreLentUntilTheyAreReleased) {
  start([this](FakeDaemon::Peer& peer) {
    peer.send(window(bytes_, 0, 600, false, 3));
    peer.send(window(bytes_, 600, 400, true, 4));
  });
  ASSERT_EQ(begin(), CKPT_OK);
  const auto first = next();
  const auto second = next();
  ASSERT_EQ(second.piece_count, 1u);
  EXPECT_EQ(second.pieces[0].offset, 600u);
  EXPECT_TRUE(next().complete);
  ckpt_restore_release(restore_, second.id);
  EXPECT_EQ(daemon_->wait_for(fb::MessageBody::ReleaseWindow, 1)[0].body.AsReleaseWindow()->slab,
            4u);
  ckpt_restore_release(restore_, first.id);
  EXPECT_EQ(daemon_->wait_for(fb::MessageBody::ReleaseWindow, 2)[1].body.AsReleaseWindow()->slab,
            3u);
  ckpt_restored restored{};
  ASSERT_EQ(ckpt_restore_end(restore_, &restored), CKPT_OK);
  EXPECT_EQ(restored.version_step, 1200u);
  EXPECT_EQ(restored.note, nullptr);
  EXPECT_EQ(restored.bytes_memory, 1000u);
  EXPECT_EQ(into_, bytes_);
}

TEST_F(WindowsTest, MismatchAfterReleaseRestartsRestore) {
  start([this](FakeDaemon::Peer& peer) { peer.send(window(bytes_, 0, 1000, true)); });
  ASSERT_EQ(begin(), CKPT_OK);
  const auto first = next();
  const ckpt_restore_piece piece = first.pieces[0];
  ckpt_restore_release(restore_, first.id);
  EXPECT_TRUE(next().complete);
  ckpt_restore_mismatch(restore_, first.id, &piece);
  EXPECT_EQ(ckpt_restore_end(restore_, nullptr), CKPT_E_FAILED_PRECONDITION);
  const auto again = next();
  EXPECT_NE(again.id, 0u);
  ckpt_restore_mismatch(restore_, first.id, &piece);  // of before: no longer of any interest
  EXPECT_TRUE(next().complete);
  ckpt_restore_mismatch(restore_, again.id, &piece);
  ckpt_restore_window window{};
  window.struct_size = sizeof window;
  EXPECT_EQ(ckpt_restore_next(restore_, 20'000, &window), CKPT_E_CORRUPT);
  EXPECT_NE(std::string(ckpt_session_error(session_->handle())).find("unit layers.0: bytes [0, 10"),
            std::string::npos);
  EXPECT_EQ(opened_, 2);
}

TEST_F(WindowsTest, PollingFindsAllWindows) {
  start([this](FakeDaemon::Peer& peer) {
    peer.send(window(bytes_, 0, 600, false, 3));
    peer.send(window(bytes_, 600, 400, true, 4));
  });
  ASSERT_EQ(begin(), CKPT_OK);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  int windows = 0;
  for (bool complete = false; !complete && std::chrono::steady_clock::now() < deadline;) {
    const auto window = next(0);
    complete = window.complete != 0;
    if (window.id != 0) ++windows;
  }
  EXPECT_EQ(windows, 2);
}

TEST_F(WindowsTest, SilenceTimesOutButEmptyPollSucceeds) {
  start([](FakeDaemon::Peer&) {});
  timeout_ms_ = 50;
  ASSERT_EQ(begin(), CKPT_OK);
  const auto none = next(0);
  EXPECT_EQ(none.id, 0u);
  EXPECT_FALSE(none.complete);
  ckpt_restore_window window{};
  window.struct_size = sizeof window;
  EXPECT_EQ(ckpt_restore_next(restore_, 20'000, &window), CKPT_E_DEADLINE_EXCEEDED);
}

// A polling trainer must not block while the daemon is slow to reopen the restore, and must not see
// a failure before the restore's own timeout.
TEST_F(WindowsTest, PollingDoesNotBlockOnSlowReopen) {
  silent_ = 2;
  start([this](FakeDaemon::Peer& peer) {
    peer.send(window(bytes_, 0, 600, false));
    peer.hang_up();
  });
  ASSERT_EQ(begin(), CKPT_OK);
  EXPECT_NE(next().id, 0u);
  // Polls until the restore has been requested again; until then each call returns no window.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto asked_again = [this] {
    const auto types = daemon_->types();
    return std::count(types.begin(), types.end(), fb::MessageBody::OpenRestore) == 2;
  };
  while (!asked_again() && std::chrono::steady_clock::now() < deadline) {
    const auto nothing = next(0);
    ASSERT_EQ(nothing.id, 0u);
    ASSERT_FALSE(nothing.complete);
  }
  ASSERT_TRUE(asked_again());
  EXPECT_EQ(next(0).id, 0u) << "the daemon has not answered";
}

// A starting daemon answers "unavailable": the client retries until its timeout.
TEST_F(WindowsTest, UnavailableDaemonIsRetried) {
  silent_ = 1;
  refusal_ = ErrorCode::kUnavailable;
  start([this](FakeDaemon::Peer& peer) { peer.send(window(bytes_, 0, 1000, true)); });
  ASSERT_EQ(begin(), CKPT_OK);
  EXPECT_NE(next().id, 0u);
  EXPECT_EQ(opened_, 2);
}

TEST_F(WindowsTest, RestoreTimedOutBeforeOpenIsClosedLater) {
  silent_ = 1;
  start([](FakeDaemon::Peer&) {});
  timeout_ms_ = 50;
  EXPECT_EQ(begin(), CKPT_E_DEADLINE_EXCEEDED);
  char* json = nullptr;
  int exit_code = 0;
  ASSERT_EQ(ckpt_query(session_->handle(), "status", "{}", 20'000, &json, &exit_code), CKPT_OK);
  ckpt_free(json);
  EXPECT_EQ(daemon_->wait_for(fb::MessageBody::CloseRestore, 1)[0].body.AsCloseRestore()->restore,
            kRestore);
}

TEST_F(WindowsTest, BeginReturnsErrorOfDaemon) {
  silent_ = 1;
  refusal_ = ErrorCode::kNotFound;
  start([](FakeDaemon::Peer&) {});
  EXPECT_EQ(begin(), CKPT_E_NOT_FOUND);
  EXPECT_EQ(restore_, nullptr);
}

TEST_F(WindowsTest, SecondConcurrentRestoreIsRefused) {
  start([this](FakeDaemon::Peer& peer) { peer.send(window(bytes_, 0, 1000, true)); });
  ASSERT_EQ(begin(), CKPT_OK);
  const auto other = restore();
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().status, CKPT_E_FAILED_PRECONDITION);
  next();
  EXPECT_TRUE(next().complete);
  ASSERT_EQ(ckpt_restore_end(restore_, nullptr), CKPT_OK);
  ckpt_restore_free(std::exchange(restore_, nullptr));
  ASSERT_OK(restore());
}

}  // namespace
}  // namespace ckpt::test
