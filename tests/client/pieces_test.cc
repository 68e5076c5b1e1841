// Writes of many pieces in one call: the same slabs as single writes, and the same refusals.
#include <ckpt/ckpt_liveness.h>

#include "tests/client/snapshot_fixture.h"

namespace ckpt::test {
namespace {

using client::Piece;

TEST_F(SnapshotTest, PiecesGiveBytesOfSingleWrites) {
  start();
  open({300'000, 70'000, 3, 600'000});
  Snapshot snapshot = begin();
  std::vector<Piece> pieces;
  uint64_t offset = 0;
  for (const uint64_t length : {1u, 4'095u, 0u, 200'000u, 95'904u}) {
    pieces.push_back({0, offset, length, data_[0].data() + offset});
    offset += length;
  }
  for (const uint32_t unit : {3u, 1u, 2u}) {
    pieces.push_back({unit, 0, data_[unit].size(), data_[unit].data()});
  }
  ASSERT_OK(snapshot.write_pieces(pieces));
  ASSERT_OK(snapshot.write_pieces({}));
  ASSERT_OK(snapshot.end());
  const fb::MessageT begun = daemon_->wait_for(fb::MessageBody::BeginSnapshot, 1)[0];
  expect_payload(seals(begun.body.AsBeginSnapshot()->slabs_wanted));
  EXPECT_EQ(snapshot.info().bytes, 300'000u + 70'000 + 3 + 600'000);
}

TEST_F(SnapshotTest, WrongPieceIsRefusedAfterThoseBefore) {
  start();
  open({1000, 1000});
  Snapshot snapshot = begin();
  const auto refused = snapshot.write_pieces(
      {{0, 0, 1000, data_[0].data()}, {1, 10, 10, data_[1].data()}, {1, 0, 10, data_[1].data()}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, CKPT_E_INVALID_ARGUMENT);
  EXPECT_NE(refused.error().message.find("unit unit1"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(snapshot.info().bytes, 1000u);
  EXPECT_EQ(snapshot.write_pieces({{1, 0, 10, nullptr}}).error().message,
            "data of a piece is NULL");
  write(snapshot, 1);
  ASSERT_OK(snapshot.end());
}

TEST_F(SnapshotTest, InterruptEndsWriteOfPieces) {
  static bool wanted = false;
  wanted = false;
  interrupted_ = [](void*) { return wanted ? 1 : 0; };
  start();
  open({1000});
  Snapshot snapshot = begin();
  wanted = true;
  const auto ended = snapshot.write_pieces({{0, 0, 1000, data_[0].data()}});
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().status, CKPT_E_ABORTED) << ended.error().message;
  EXPECT_EQ(snapshot.info().bytes, 0u);
  wanted = false;
}

TEST_F(SnapshotTest, PiecesNeedOptionsAndAnArray) {
  start();
  open({1000});
  Snapshot snapshot = begin();
  EXPECT_EQ(ckpt_snapshot_write_pieces(snapshot.handle(), nullptr), CKPT_E_INVALID_ARGUMENT);
  ckpt_write_options options{};
  options.struct_size = sizeof options;
  options.piece_count = 1;
  EXPECT_EQ(ckpt_snapshot_write_pieces(snapshot.handle(), &options), CKPT_E_INVALID_ARGUMENT);
  // A struct that its caller has not begun with CKPT_INIT must not read as one without pieces.
  options.struct_size = offsetof(ckpt_write_options, piece_count);
  EXPECT_EQ(ckpt_snapshot_write_pieces(snapshot.handle(), &options), CKPT_E_INVALID_ARGUMENT);
  const std::string said = ckpt_session_error(session_->handle());
  EXPECT_NE(said.find("CKPT_INIT"), std::string::npos) << said;
}

}  // namespace
}  // namespace ckpt::test
