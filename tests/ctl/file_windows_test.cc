#include "client/ctl/file_windows.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "client/ctl/view.h"

namespace ckptctl {
namespace {

using Bytes = std::vector<std::byte>;

TEST(WantedBytes, PlacesOfSpreadPieceAreItsRuns) {
  const WantedBytes piece{.length = 5, .destination = 100, .run = 2, .step = 10};
  const std::vector<uint64_t> places = {100, 101, 110, 111, 120};
  for (uint64_t i = 0; i < piece.length; ++i) EXPECT_EQ(place_of(piece, i), places[i]);
  const WantedBytes part = part_of(piece, 1, 3);
  EXPECT_EQ(part.offset, 1u);
  for (uint64_t i = 0; i < part.length; ++i) EXPECT_EQ(place_of(part, i), places[i + 1]);
  const WantedBytes last = part_of(part, 2, 1);
  EXPECT_EQ(place_of(last, 0), 111u);
  const WantedBytes contiguous = part_of({.offset = 7, .length = 9, .destination = 50}, 4, 5);
  EXPECT_EQ(place_of(contiguous, 2), 56u);
}

// Pieces as a layout makes them, and the place of each byte in the file.
struct MadePieces {
  std::vector<WantedBytes> pieces;
  // Place, by unit and offset in the unit.
  std::map<std::pair<ckpt::UnitId, uint64_t>, uint64_t> places;
  uint64_t end = 0;
};

class PieceMaker {
 public:
  PieceMaker(uint64_t seed, bool gaps) : random_(seed), gaps_(gaps) {}

  MadePieces make(size_t tensors) {
    made_.end = number(0, 20);
    for (size_t i = 0; i < tensors; ++i) {
      if (gaps_ && number(0, 2) == 0) made_.end += number(1, 200);
      if (number(0, 2) == 0) {
        add_contiguous(number(1, 60));
      } else {
        add_blocks(number(2, 9), number(1, 6));
      }
    }
    return std::move(made_);
  }

 private:
  uint64_t number(uint64_t least, uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(least, most)(random_);
  }
  WantedBytes& add(uint64_t length) {
    const auto unit = static_cast<ckpt::UnitId>(made_.pieces.size());
    made_.pieces.push_back({unit, number(0, 1000), length, made_.end});
    return made_.pieces.back();
  }
  void add_contiguous(uint64_t length) {
    const WantedBytes& piece = add(length);
    for (uint64_t i = 0; i < length; ++i) place(piece, i, made_.end + i);
    made_.end += length;
  }
  void add_blocks(uint64_t rows, uint64_t blocks) {
    std::vector<uint64_t> widths(blocks);
    uint64_t step = 0;
    for (uint64_t& width : widths) step += width = number(1, 12);
    const uint64_t begin = made_.end;
    for (const uint64_t width : widths) {
      WantedBytes& piece = add(rows * width);
      piece.run = width;
      piece.step = step;
      for (uint64_t i = 0; i < piece.length; ++i) {
        place(piece, i, made_.end + i / width * step + i % width);
      }
      made_.end += width;
    }
    made_.end = begin + rows * step;
  }
  void place(const WantedBytes& piece, uint64_t i, uint64_t at) {
    made_.places[{piece.unit, piece.offset + i}] = at;
  }

  std::mt19937_64 random_;
  bool gaps_;
  MadePieces made_;
};

// Removes the window's bytes from `places`. True if each is at its place and within the window.
bool take_window(const FileWindow& window, MadePieces& made) {
  for (const WantedBytes& part : window.pieces) {
    if (part.length == 0) return false;
    for (uint64_t i = 0; i < part.length; ++i) {
      const auto found = made.places.find({part.unit, part.offset + i});
      if (found == made.places.end() || found->second != place_of(part, i)) return false;
      if (found->second < window.begin || found->second >= window.begin + window.bytes) {
        return false;
      }
      made.places.erase(found);
    }
  }
  return true;
}

TEST(FileWindows, HoldEveryByteOnceWithinLimits) {
  const auto seed = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  for (uint64_t round = 0; round < 400; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    const bool gaps = round % 2 == 1;
    MadePieces made = PieceMaker(seed * 1000 + round, gaps).make(1 + round % 7);
    const FileWindows::Limits limits{.bytes = 1 + round % 50, .pieces = 1 + round % 5};
    FileWindows windows(made.pieces, limits);
    uint64_t position = made.pieces[0].destination;
    for (FileWindow window; windows.next(window); position = window.begin + window.bytes) {
      ASSERT_GE(window.begin, position);
      ASSERT_TRUE(gaps || window.begin == position) << "a hole before " << window.begin;
      ASSERT_GT(window.bytes, 0u);
      ASSERT_LE(window.bytes, limits.bytes);
      ASSERT_LE(window.pieces.size(), limits.pieces);
      const size_t before = made.places.size();
      ASSERT_TRUE(take_window(window, made));
      ASSERT_EQ(before - made.places.size(), window.bytes) << "a hole, or a byte twice";
    }
    EXPECT_EQ(position, made.end);
    EXPECT_TRUE(made.places.empty());
  }
}

TEST(FileWindows, NoPiecesGiveNoWindow) {
  const std::vector<WantedBytes> empty = {{.destination = 8}, {.destination = 8}};
  FileWindow window;
  EXPECT_FALSE(FileWindows({}, {.bytes = 8, .pieces = 8}).next(window));
  EXPECT_FALSE(FileWindows(empty, {.bytes = 8, .pieces = 8}).next(window));
}

// Windows of several tiles, and runs of lengths with and without a copy of their own.
TEST(FileWindows, PackAndUnpackReverseEachOther) {
  const std::vector<uint64_t> widths = {1, 2, 3, 4, 8, 16, 24, 32, 100, 1000};
  constexpr uint64_t kRows = 700;
  constexpr uint64_t kBegin = 77;
  uint64_t step = 5;  // of another tensor's bytes in each row
  for (const uint64_t width : widths) step += width;
  std::vector<WantedBytes> pieces;
  uint64_t at = kBegin + 5;
  for (const uint64_t width : widths) {
    pieces.push_back({.length = kRows * width, .destination = at, .run = width, .step = step});
    at += width;
  }
  Bytes file(kBegin + kRows * step);
  std::mt19937_64 random(1);
  for (std::byte& byte : file) byte = static_cast<std::byte>(random());
  FileWindows windows(pieces, {.bytes = 300'001, .pieces = 100});
  uint64_t bytes = 0;
  for (FileWindow window; windows.next(window); bytes += window.bytes) {
    const auto image = ckpt::ByteView(file).subspan(window.begin, window.bytes);
    Bytes packed(spread_bytes(window.pieces));
    pack(window, image, packed);
    Bytes again(window.bytes, std::byte{0xee});
    Bytes expected = again;
    uint64_t in_packed = 0;
    for (const WantedBytes& part : window.pieces) {
      for (uint64_t i = 0; i < part.length; ++i) {
        const uint64_t place = place_of(part, i) - window.begin;
        ASSERT_EQ(packed[in_packed++], image[place]);
        expected[place] = image[place];
      }
    }
    unpack(window, packed, again);
    ASSERT_TRUE(again == expected) << "of the window at " << window.begin;
  }
  EXPECT_EQ(bytes, kRows * step - 5);
}

TEST(Batches, CutSpreadPiecesInsideRuns) {
  const WantedBytes spread{.unit = 1,
                           .offset = 40,
                           .length = 3 * kReadBytes + 16,
                           .destination = 1000,
                           .run = 4096 + 8,
                           .step = 20'000};
  uint64_t done = 0;
  for (const auto& batch : in_batches({{.length = 24}, spread})) {
    for (const WantedBytes& piece : batch) {
      if (piece.unit != spread.unit) continue;
      EXPECT_EQ(piece.offset, spread.offset + done);
      EXPECT_EQ(done % 8, 0u) << "cut inside an element";
      for (const uint64_t i : {uint64_t{0}, piece.length / 2, piece.length - 1}) {
        EXPECT_EQ(place_of(piece, i), place_of(spread, done + i));
      }
      done += piece.length;
    }
  }
  EXPECT_EQ(done, spread.length);
}

}  // namespace
}  // namespace ckptctl
