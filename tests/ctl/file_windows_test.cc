#include "client/ctl/file_windows.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "client/ctl/view.h"

namespace ckptctl {
namespace {

using testing::ElementsAre;
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

TEST(FileWindows, HoldEveryByteOnce) {
  const auto seed = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  for (uint64_t round = 0; round < 400; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    const bool gaps = round % 2 == 1;
    MadePieces made = PieceMaker(seed * 1000 + round, gaps).make(1 + round % 7);
    const uint64_t window_bytes = 10 + round % 50;
    FileWindows windows(made.pieces, {.usual = 1 + round % 9, .most = window_bytes});
    uint64_t position = made.pieces[0].destination;
    for (FileWindow window; windows.next(window); position = window.begin + window.bytes) {
      ASSERT_GE(window.begin, position);
      ASSERT_TRUE(gaps || window.begin == position) << "a hole before " << window.begin;
      ASSERT_GT(window.bytes, 0u);
      ASSERT_LE(window.bytes, window_bytes);
      const size_t before = made.places.size();
      ASSERT_TRUE(take_window(window, made));
      ASSERT_EQ(before - made.places.size(), window.bytes) << "a hole, or a byte twice";
    }
    EXPECT_EQ(position, made.end);
    EXPECT_TRUE(made.places.empty());
  }
}

TEST(FileWindows, WindowsWithBlocksEndBetweenTensors) {
  const auto sizes_of = [](const std::vector<WantedBytes>& pieces) {
    FileWindows windows(pieces, {.usual = 100, .most = 300});
    std::vector<uint64_t> sizes;
    for (FileWindow window; windows.next(window);) sizes.push_back(window.bytes);
    return sizes;
  };
  // Two blocks of `rows` rows of 10 bytes, at this place.
  const auto with_blocks = [](std::vector<WantedBytes> before, uint64_t rows, uint64_t place) {
    before.push_back({.length = rows * 4, .destination = place, .run = 4, .step = 10});
    before.push_back({.length = rows * 6, .destination = place + 4, .run = 6, .step = 10});
    return before;
  };
  const std::vector<WantedBytes> contiguous = {{.length = 250}};
  EXPECT_THAT(sizes_of(contiguous), ElementsAre(100, 100, 50));
  EXPECT_THAT(sizes_of(with_blocks({}, 25, 0)), ElementsAre(250)) << "whole";
  EXPECT_THAT(sizes_of(with_blocks({}, 70, 0)), ElementsAre(300, 300, 100));
  EXPECT_THAT(sizes_of(with_blocks(with_blocks({}, 9, 0), 8, 90)), ElementsAre(170));
  EXPECT_THAT(sizes_of(with_blocks(with_blocks({}, 10, 0), 8, 100)), ElementsAre(100, 80));
  EXPECT_THAT(sizes_of(with_blocks(contiguous, 15, 250)), ElementsAre(100, 100, 200));
}

TEST(FileWindows, NoPiecesGiveNoWindow) {
  const std::vector<WantedBytes> empty = {{.destination = 8}, {.destination = 8}};
  FileWindow window;
  EXPECT_FALSE(FileWindows({}, 8).next(window));
  EXPECT_FALSE(FileWindows(empty, 8).next(window));
}

// Runs of lengths with and without a copy of their own, and contiguous pieces.
std::vector<WantedBytes> pieces_of_all_widths(uint64_t begin) {
  constexpr uint64_t kRows = 300;
  std::vector<WantedBytes> pieces;
  pieces.push_back({.length = 999, .destination = begin});
  uint64_t at = begin + 999;
  for (const uint64_t width : {1, 2, 3, 4, 8, 16, 24, 32, 100, 1000}) {
    pieces.push_back({.length = kRows * width, .destination = at, .run = width});
    at += width;
  }
  const uint64_t step = at - begin - 999;
  for (WantedBytes& piece : pieces) piece.step = step;
  pieces.push_back({.length = 1000, .destination = begin + 999 + kRows * step});
  return pieces;
}

// The file's bytes packed window by window, and unpacked again from there.
TEST(FileWindows, PackAndUnpackReverseEachOther) {
  constexpr uint64_t kBegin = 77;
  const std::vector<WantedBytes> pieces = pieces_of_all_widths(kBegin);
  Bytes file(pieces.back().destination + pieces.back().length);
  std::mt19937_64 random(1);
  for (std::byte& byte : file) byte = static_cast<std::byte>(random());
  for (const uint64_t window_bytes : {1'500ul, 99'999ul, 1'000'000ul}) {
    SCOPED_TRACE(testing::Message() << "windows of " << window_bytes);
    Bytes again(file.begin(), file.begin() + kBegin);
    FileWindows windows(pieces, window_bytes);
    for (FileWindow window; windows.next(window);) {
      ASSERT_TRUE(is_filled(window));
      Bytes memory(window.bytes);
      FileWindow tile;
      for (Tiles tiles(window, 777); tiles.next(tile);) {
        ASSERT_TRUE(is_filled(tile));
        pack(tile, ckpt::ByteView(file).subspan(tile.begin, tile.bytes), memory);
      }
      uint64_t index = 0;
      for (const WantedBytes& piece : window.pieces) {
        for (uint64_t i = 0; i < piece.length; ++i) {
          ASSERT_EQ(memory[index++], file[place_of(piece, i)]) << i << " of run " << piece.run;
        }
      }
      Bytes image(5'555);
      for (Tiles tiles(window, image.size()); tiles.next(tile);) {
        ASSERT_EQ(tile.begin, again.size());
        unpack(tile, memory, image);
        again.insert(again.end(), image.begin(),
                     image.begin() + static_cast<ptrdiff_t>(tile.bytes));
      }
    }
    EXPECT_TRUE(again == file);
  }
}

// Tiles of windows, where a window may begin inside a row and inside a run.
TEST(FileWindows, TilesHoldEveryByteOnce) {
  const auto seed = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  for (uint64_t round = 0; round < 400; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " round " << round);
    MadePieces made = PieceMaker(seed * 1000 + round, /*gaps=*/false).make(1 + round % 7);
    FileWindows windows(made.pieces, 1 + round % 90);
    uint64_t position = made.pieces[0].destination;
    for (FileWindow window; windows.next(window);) {
      // Where each byte of the memory comes from.
      std::vector<std::pair<ckpt::UnitId, uint64_t>> memory;
      for (const WantedBytes& piece : window.pieces) {
        for (uint64_t i = 0; i < piece.length; ++i) {
          memory.emplace_back(piece.unit, piece.offset + i);
        }
      }
      Tiles tiles(window, 1 + round % 17);
      for (FileWindow tile; tiles.next(tile); position += tile.bytes) {
        ASSERT_EQ(tile.begin, position);
        ASSERT_TRUE(is_filled(tile));
        for (const WantedBytes& part : tile.pieces) {
          for (uint64_t i = 0; i < part.length; ++i) {
            const auto found = made.places.find(memory.at(part.offset + i));
            ASSERT_NE(found, made.places.end());
            ASSERT_EQ(found->second, place_of(part, i));
            made.places.erase(found);
          }
        }
      }
    }
    EXPECT_EQ(position, made.end);
    EXPECT_TRUE(made.places.empty());
  }
}

TEST(Batches, CutOnlyPiecesOfManyBytes) {
  const std::vector<WantedBytes> thirds(4, {.length = kReadBytes / 3});
  const auto batches = in_batches(thirds);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].size(), 3u);
  EXPECT_EQ(batches[1][0].length, kReadBytes / 3);
  EXPECT_EQ(in_batches({{.length = 8}, {.length = kReadBytes}}).size(), 2u);
  EXPECT_EQ(in_batches({{.length = 8}, {.length = kReadBytes + 1}})[1][0].length, 9u);
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
