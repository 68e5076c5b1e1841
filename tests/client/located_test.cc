// Windows with a file, from a daemon whose messages may be wrong.
#include <sys/mman.h>

#include <limits>

#include "ckpt/ckpt_direct.h"
#include "formats/base/crc32c.h"
#include "tests/client/client_fixture.h"
#include "tests/client/fake_daemon.h"

namespace ckpt::test {
namespace {

constexpr uint64_t kLocatedRestore = 77;
constexpr uint64_t kUnitBytes = 10'000;
constexpr uint64_t kFileOffset = 8192 + 100;  // of the unit's bytes

class LocatedTest : public testing::Test {
 protected:
  LocatedTest() : bytes_(random_bytes(kUnitBytes, 1)), into_(kUnitBytes) {
    file_.reset(::memfd_create("segment", MFD_CLOEXEC));
    EXPECT_EQ(::pwrite(file_.get(), bytes_.data(), bytes_.size(), kFileOffset),
              static_cast<ssize_t>(bytes_.size()));
  }
  void TearDown() override { ckpt_restore_free(restore_); }

  // Answers OpenRestore, then calls `windows`; also calls it after each release of a window.
  void start(std::function<void(FakeDaemon::Peer&)> windows, bool locates = true) {
    daemon_ = std::make_unique<FakeDaemon>(
        socket_, FakeDaemon::Options{},
        [=, this](FakeDaemon::Peer& peer, const fb::MessageT& message) {
          if (const auto* open = message.body.AsOpenRestore()) {
            fb::RestoreOpenedT opened;
            opened.request = open->request;
            opened.restore = kLocatedRestore;
            opened.units.push_back(std::make_unique<fb::RestoredUnitT>());
            opened.units[0]->version_lineage = 1;
            opened.units[0]->version_step = 1200;
            opened.locates = locates;
            if (!locates) opened.not_located = "not to you";
            peer.send(std::move(opened));
            windows(peer);
            return true;
          }
          if (message.body.type != fb::MessageBody::LocatedRead) return false;
          if (on_read_) on_read_(peer, *message.body.AsLocatedRead());
          return true;
        });
    client::OpenOptions options;
    options.socket = socket_;
    options.run = "tiny";
    auto session = client::Session::open(options);
    ASSERT_OK(session);
    session_.emplace(std::move(session).value());
    ASSERT_OK(session_->register_units({flat_unit("layers.0", kUnitBytes)}));
  }
  ckpt_status begin(ckpt_direct direct = CKPT_DIRECT_AUTO) {
    ckpt_restore_options options = CKPT_INIT(ckpt_restore_options);
    options.step = 1200;
    options.timeout_ms = 20'000;
    options.direct = direct;
    options.locate_bytes_max = 64 << 10;
    const ckpt_range range{0, 0, kUnitBytes, nullptr};
    return ckpt_restore_begin(session_->handle(), &options, &range, 1, &restore_);
  }
  // Two fragments, the second from byte 6,000 on.
  static fb::LocatedT located() {
    fb::LocatedT message;
    message.restore = kLocatedRestore;
    message.number = 5;
    message.segment = 3;
    message.fragments = {fb::LocatedFragment(kFileOffset, 6000, 11, 1),
                         fb::LocatedFragment(kFileOffset + 6000, 4000, 22, 1)};
    message.pieces = {fb::LocatedPiece(0, 0, 0, 6000, 0), fb::LocatedPiece(0, 0, 6000, 4000, 0)};
    return message;
  }
  void send(FakeDaemon::Peer& peer, fb::LocatedT message, bool with_file = true) const {
    peer.send_bytes(wire::encode(std::move(message)), with_file ? file_.get() : -1);
  }
  static void send_last(FakeDaemon::Peer& peer) {
    fb::RestoreWindowT last;
    last.restore = kLocatedRestore;
    last.slab = UINT32_MAX;
    last.last = true;
    peer.send(std::move(last));
  }
  ckpt_status next(ckpt_restore_window* window) {
    *window = CKPT_INIT(ckpt_restore_window);
    return ckpt_restore_next(restore_, 20'000, window);
  }
  ckpt_restore_window shown() {
    ckpt_restore_window window{};
    EXPECT_EQ(next(&window), CKPT_OK) << error();
    return window;
  }
  std::string error() const { return ckpt_session_error(session_->handle()); }

  std::vector<char> bytes_;
  std::vector<char> into_;
  base::UniqueFd file_;
  TempFolder folder_;
  std::string socket_ = folder_.path("ckptd.sock");
  std::function<void(FakeDaemon::Peer&, const fb::LocatedReadT&)> on_read_;
  std::unique_ptr<FakeDaemon> daemon_;
  std::optional<client::Session> session_;
  ckpt_restore* restore_ = nullptr;
};

TEST_F(LocatedTest, ReleaseReportsFragmentsThatFailedToRead) {
  on_read_ = [this](FakeDaemon::Peer& peer, const fb::LocatedReadT& read) {
    EXPECT_EQ(read.number, 5u);
    EXPECT_EQ(read.failed, (std::vector<uint32_t>{1}));
    EXPECT_EQ(read.reason, "no light");
    EXPECT_FALSE(read.stop);
    // Then it comes in a slab.
    const ByteView rest = as_bytes({bytes_.data() + 6000, 4000});
    std::copy(rest.begin(), rest.end(), daemon_->slab(2).begin());
    fb::RestoreWindowT window;
    window.restore = kLocatedRestore;
    window.slab = 2;
    window.last = true;
    window.pieces.emplace_back(0, 0, 6000, 4000, 0, base::crc32c(rest), 1);
    peer.send(std::move(window));
  };
  start([this](FakeDaemon::Peer& peer) { send(peer, located()); });
  ASSERT_EQ(begin(), CKPT_OK);
  EXPECT_EQ(ckpt_restore_not_located(restore_), nullptr);
  const auto window = shown();
  EXPECT_EQ(window.data, nullptr);
  ckpt_restore_located where = CKPT_INIT(ckpt_restore_located);
  ASSERT_EQ(ckpt_restore_file(restore_, &where), CKPT_OK);
  EXPECT_EQ(where.segment, 3u);
  ASSERT_EQ(where.fragment_count, 2u);
  EXPECT_EQ(where.fragments[1].crc32c, 22u);
  EXPECT_EQ(where.fragments[1].first_piece, 1u);
  ASSERT_EQ(window.piece_count, 2u);
  EXPECT_EQ(window.pieces[1].at, kFileOffset + 6000);
  std::vector<char> read(6000);
  EXPECT_EQ(::pread(where.file, read.data(), read.size(), static_cast<off_t>(window.pieces[0].at)),
            6000);
  EXPECT_TRUE(std::equal(read.begin(), read.end(), bytes_.begin()));
  ckpt_restore_failed(restore_, window.id, 1, "no light");
  ckpt_restore_failed(restore_, window.id, 1, "a later reason");
  ckpt_restore_failed(restore_, window.id, 2, "there is no such fragment");
  ckpt_restore_failed(restore_, window.id + 1, 0, "there is no such window");
  ckpt_restore_release(restore_, window.id);
  const auto rest = shown();
  EXPECT_NE(rest.data, nullptr);
  EXPECT_EQ(ckpt_restore_file(restore_, &where), CKPT_E_FAILED_PRECONDITION);
  ckpt_restore_release(restore_, rest.id);
  EXPECT_TRUE(shown().complete);
  ckpt_restored restored{};
  ASSERT_EQ(ckpt_restore_end(restore_, &restored), CKPT_OK) << error();
  EXPECT_EQ(restored.bytes_disk, kUnitBytes) << "each byte counts once";
}

TEST_F(LocatedTest, FailedFragmentsDoNotCountAsRestored) {
  on_read_ = [](FakeDaemon::Peer& peer, const fb::LocatedReadT& read) {
    EXPECT_TRUE(read.stop);
    EXPECT_EQ(read.failed.size(), 2u);
    send_last(peer);  // and nothing more
  };
  start([this](FakeDaemon::Peer& peer) { send(peer, located()); });
  ASSERT_EQ(begin(), CKPT_OK);
  const auto window = shown();
  ckpt_restore_failed(restore_, window.id, CKPT_ALL_FRAGMENTS, "no cuFile");
  ckpt_restore_release(restore_, window.id);
  ckpt_restore_window none{};
  EXPECT_EQ(next(&none), CKPT_E_CORRUPT);
  EXPECT_NE(error().find("the daemon left out byte 0"), std::string::npos) << error();
}

TEST_F(LocatedTest, UnreleasedWindowDoesNotCountAsRestored) {
  start([this](FakeDaemon::Peer& peer) {
    send(peer, located());
    send_last(peer);
  });
  ASSERT_EQ(begin(), CKPT_OK);
  shown();
  ckpt_restore_window none{};
  EXPECT_EQ(next(&none), CKPT_E_CORRUPT);
}

// The unit falls back to an older version while the window is read: the bytes of the newer version
// no longer count.
TEST_F(LocatedTest, OlderVersionInvalidatesWindowBeingRead) {
  on_read_ = [](FakeDaemon::Peer& peer, const fb::LocatedReadT&) { send_last(peer); };
  start([this](FakeDaemon::Peer& peer) {
    send(peer, located());
    fb::LocatedT older = located();
    older.number = 6;
    older.fragments.resize(1);
    older.pieces.resize(1);
    older.notes.push_back(std::make_unique<fb::RestoreNoteT>());
    older.notes[0]->version_lineage = 1;
    older.notes[0]->version_step = 1100;
    older.notes[0]->note = "step 1200 is damaged";
    send(peer, older);
  });
  ASSERT_EQ(begin(), CKPT_OK);
  const uint64_t newer = shown().id;
  const uint64_t older = shown().id;
  ckpt_restore_release(restore_, newer);
  ckpt_restore_release(restore_, older);
  ckpt_restore_window none{};
  EXPECT_EQ(next(&none), CKPT_E_CORRUPT);
  EXPECT_NE(error().find("left out byte 6000"), std::string::npos) << error();
}

TEST_F(LocatedTest, InvalidMessagesAreRefused) {
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  using Fragment = fb::LocatedFragment;
  using Piece = fb::LocatedPiece;
  const std::vector<std::pair<const char*, std::function<void(fb::LocatedT&)>>> lies = {
      {"no fragments", [](auto& m) { m.fragments.clear(), m.pieces.clear(); }},
      {"empty", [](auto& m) { m.fragments[0] = Fragment(kFileOffset, 0, 0, 1); }},
      {"without a piece", [](auto& m) { m.fragments[0] = Fragment(kFileOffset, 6000, 0, 0); }},
      {"overlap", [](auto& m) { m.fragments[1] = Fragment(kFileOffset + 5999, 4000, 0, 1); }},
      {"descending", [](auto& m) { m.fragments[1] = Fragment(0, 4000, 0, 1); }},
      {"over the end", [](auto& m) { m.fragments[1] = Fragment(kHuge - 10, 4000, 0, 1); }},
      {"at the end", [](auto& m) { m.fragments[1] = Fragment(kHuge - 4000, 4000, 0, 1); }},
      {"endless", [](auto& m) { m.fragments[1] = Fragment(kFileOffset + 6000, kHuge, 0, 1); }},
      {"too much", [](auto& m) { m.fragments[1] = Fragment(kFileOffset + 6000, 64 << 10, 0, 1); }},
      {"too many pieces", [](auto& m) { m.pieces.push_back(m.pieces[0]); }},
      {"too few pieces", [](auto& m) { m.pieces.pop_back(); }},
      {"many pieces", [](auto& m) { m.fragments[1] = Fragment(kFileOffset + 6000, 1, 0, ~0u); }},
      {"no such range", [](auto& m) { m.pieces[0] = Piece(1, 0, 0, 6000, 0); }},
      {"another unit", [](auto& m) { m.pieces[0] = Piece(0, 1, 0, 6000, 0); }},
      {"beyond the range", [](auto& m) { m.pieces[0] = Piece(0, 0, kUnitBytes - 5999, 6000, 0); }},
      {"before the range", [](auto& m) { m.pieces[0] = Piece(0, 0, kHuge, 6000, 0); }},
      {"endless piece", [](auto& m) { m.pieces[0] = Piece(0, 0, 1, kHuge, 0); }},
      {"beyond its fragment", [](auto& m) { m.pieces[0] = Piece(0, 0, 0, 6000, 1); }},
      {"before its fragment", [](auto& m) { m.pieces[0] = Piece(0, 0, 0, 6000, kHuge); }},
      {"a note about nothing",
       [](auto& m) {
         m.notes.push_back(std::make_unique<fb::RestoreNoteT>());
         m.notes[0]->want = 1;
       }},
  };
  for (const auto& [name, lie] : lies) {
    SCOPED_TRACE(name);
    fb::LocatedT message = located();
    lie(message);
    start([&](FakeDaemon::Peer& peer) { send(peer, message); });
    ASSERT_EQ(begin(), CKPT_OK);
    ckpt_restore_window window{};
    EXPECT_EQ(next(&window), CKPT_E_CORRUPT);
    ckpt_restore_free(std::exchange(restore_, nullptr));
    session_.reset();
    daemon_->stop();
    daemon_.reset();
  }
}

TEST_F(LocatedTest, WindowWithoutFileIsRefused) {
  start([this](FakeDaemon::Peer& peer) { send(peer, located(), false); });
  ASSERT_EQ(begin(), CKPT_OK);
  ckpt_restore_window window{};
  EXPECT_EQ(next(&window), CKPT_E_CORRUPT);
  EXPECT_NE(error().find("segment 3 came without its file"), std::string::npos) << error();
}

// Descriptors arrive before the messages they belong to are whole.
TEST_F(LocatedTest, EachWindowGetsItsOwnFile) {
  const auto files = std::make_shared<std::vector<base::UniqueFd>>();
  start([files](FakeDaemon::Peer& peer) {
    for (uint64_t i = 0; i < 8; ++i) {
      files->emplace_back(::memfd_create("one", MFD_CLOEXEC));
      EXPECT_EQ(::ftruncate(files->back().get(), static_cast<off_t>(i)), 0);
      fb::LocatedT message = located();
      message.segment = i;
      // Long ones, so that reads of the client's end anywhere in them.
      message.pieces.assign(1 + 700 * i, fb::LocatedPiece(0, 0, 0, 1, 0));
      message.fragments = {
          fb::LocatedFragment(kFileOffset, 6000, 11, static_cast<uint32_t>(message.pieces.size()))};
      peer.send_bytes(wire::encode(std::move(message)), files->back().get());
    }
  });
  ASSERT_EQ(begin(), CKPT_OK);
  for (off_t i = 0; i < 8; ++i) {
    ASSERT_NE(shown().id, 0u);
    ckpt_restore_located where = CKPT_INIT(ckpt_restore_located);
    ASSERT_EQ(ckpt_restore_file(restore_, &where), CKPT_OK);
    EXPECT_EQ(::lseek(where.file, 0, SEEK_END), static_cast<off_t>(where.segment));
    EXPECT_EQ(static_cast<off_t>(where.segment), i);
  }
}

TEST_F(LocatedTest, DaemonGivesReasonForNoFiles) {
  start(send_last, false);
  EXPECT_EQ(begin(CKPT_DIRECT_REQUIRED), CKPT_E_FAILED_PRECONDITION);
  EXPECT_NE(error().find("not to you"), std::string::npos) << error();
  daemon_->wait_for(fb::MessageBody::CloseRestore, 1);  // it was open there
  ASSERT_EQ(begin(), CKPT_OK);
  EXPECT_STREQ(ckpt_restore_not_located(restore_), "not to you");
}

}  // namespace
}  // namespace ckpt::test
