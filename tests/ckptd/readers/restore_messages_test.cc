// Messages to the client of a restore.
#include "ckptd/readers/restore_messages.h"

#include <gtest/gtest.h>

#include "ckptd/limits.h"

namespace ckptd {
namespace {

TEST(NoteTexts, AUnitsTextIsSentOnce) {
  NoteTexts texts;
  EXPECT_EQ(texts.of(3, "expert 3: damaged"), "expert 3: damaged");
  EXPECT_EQ(texts.of(4, "expert 4: damaged"), "expert 4: damaged");
  EXPECT_EQ(texts.of(3, "expert 3: damaged"), "as the first range of this unit");
}

TEST(NoteTexts, RangeWithoutNoteHasEmptyText) {
  NoteTexts texts;
  EXPECT_EQ(texts.of(3, ""), "");
  EXPECT_EQ(texts.of(3, "damaged"), "damaged") << "the empty note did not count";
}

TEST(NoteTexts, TextsOfAMessageAreBounded) {
  NoteTexts texts;
  const std::string note(limits::kNoteBytesMax, 'x');
  size_t bytes = 0;
  for (ckpt::UnitId unit = 0; unit < 2 * limits::kNoteTextsBytesMax / note.size(); ++unit) {
    const std::string text = texts.of(unit, note);
    if (text != note) {
      EXPECT_LE(text.size(), limits::kNoteReferenceBytesMax);
    } else {
      bytes += text.size();
    }
  }
  EXPECT_GT(bytes, 0u);
  EXPECT_LE(bytes, limits::kNoteTextsBytesMax);
}

TEST(RestoreMessages, AWindowCarriesPiecesAndNotes) {
  Window window{.slab = 5, .pieces = {}, .notes = {}, .last = true, .located = {}};
  window.pieces.push_back({.want = 1,
                           .range = {.unit = 9, .offset = 64, .length = 128},
                           .slab_offset = 4096,
                           .crc32c = 77,
                           .source = SourceId::kMemory});
  window.notes.push_back({.unit = 9,
                          .wants = {1, 2},
                          .snapshot = {.run = 1, .lineage = 2, .epoch = 1, .step = 30},
                          .note = "damaged"});
  const ckpt::fb::RestoreWindowT message = window_message(17, window);
  EXPECT_EQ(message.restore, 17u);
  EXPECT_EQ(message.slab, 5u);
  EXPECT_TRUE(message.last);
  ASSERT_EQ(message.pieces.size(), 1u);
  EXPECT_EQ(message.pieces[0].want(), 1u);
  EXPECT_EQ(message.pieces[0].slab_offset(), 4096u);
  EXPECT_EQ(message.pieces[0].crc32c(), 77u);
  ASSERT_EQ(message.notes.size(), 2u) << "one per want";
  EXPECT_EQ(message.notes[0]->want, 1u);
  EXPECT_EQ(message.notes[0]->version_lineage, 2u);
  EXPECT_EQ(message.notes[0]->version_step, 30u);
  EXPECT_EQ(message.notes[0]->note, "damaged");
  EXPECT_EQ(message.notes[1]->note, "as the first range of this unit");
}

TEST(RestoreMessages, LocatedFragmentsCountTheirPieces) {
  const auto piece = [](size_t want) {
    return WindowPiece{.want = want,
                       .range = {.unit = 1, .offset = 0, .length = 10},
                       .slab_offset = want,
                       .crc32c = 0,
                       .source = SourceId::kSegment};
  };
  Located located{.number = 3, .container = 12, .file = -1, .fragments = {}};
  located.fragments.push_back(
      {.file_offset = 4096, .length = 10, .crc32c = 5, .pieces = {piece(0), piece(1)}});
  located.fragments.push_back(
      {.file_offset = 8192, .length = 10, .crc32c = 6, .pieces = {piece(2)}});
  const Window window{
      .slab = kNoSlab, .pieces = {}, .notes = {}, .last = false, .located = located};
  const ckpt::fb::LocatedT message = located_message(17, window);
  EXPECT_EQ(message.number, 3u);
  EXPECT_EQ(message.segment, 12u);
  ASSERT_EQ(message.fragments.size(), 2u);
  EXPECT_EQ(message.fragments[0].pieces(), 2u);
  EXPECT_EQ(message.fragments[1].pieces(), 1u);
  ASSERT_EQ(message.pieces.size(), 3u) << "of all fragments, in their order";
  EXPECT_EQ(message.pieces[2].want(), 2u);
}

}  // namespace
}  // namespace ckptd
