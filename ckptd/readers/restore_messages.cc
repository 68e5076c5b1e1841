#include "ckptd/readers/restore_messages.h"

#include "ckptd/limits.h"
#include "formats/base/printable.h"

namespace ckptd {

namespace fb = ckpt::fb;

namespace {

constexpr char kRepeatedNote[] = "as the first range of this unit";
constexpr char kTooManyNotes[] = "not as the view has it: `ckptctl verify` says why";
static_assert(sizeof(kRepeatedNote) <= limits::kNoteReferenceBytesMax &&
              sizeof(kTooManyNotes) <= limits::kNoteReferenceBytesMax);
static_assert(static_cast<size_t>(fb::Source::MAX) + 1 == kSourceIds);

std::vector<std::unique_ptr<fb::RestoreNoteT>> note_messages(const Window& window) {
  std::vector<std::unique_ptr<fb::RestoreNoteT>> messages;
  NoteTexts texts;
  for (const RestoreNote& note : window.notes) {
    for (const size_t want : note.wants) {
      auto out = std::make_unique<fb::RestoreNoteT>();
      out->want = static_cast<uint32_t>(want);
      out->version_lineage = note.snapshot.lineage;
      out->version_step = note.snapshot.step;
      out->note = texts.of(note.unit, note.note);
      messages.push_back(std::move(out));
    }
  }
  return messages;
}

}  // namespace

std::string NoteTexts::of(ckpt::UnitId unit, const std::string& note) {
  if (note.empty()) return {};
  if (!noted_units_.insert(unit).second) return kRepeatedNote;
  std::string text = ckpt::base::shortened(note, limits::kNoteBytesMax);
  if (bytes_ + text.size() > limits::kNoteTextsBytesMax) return kTooManyNotes;
  bytes_ += text.size();
  return text;
}

std::vector<std::unique_ptr<fb::RestoredUnitT>> restored_units(const RestoreRequest& request,
                                                               const RestorePlan& plan) {
  std::vector<std::unique_ptr<fb::RestoredUnitT>> units;
  NoteTexts texts;
  for (size_t i = 0; i < request.wants.size(); ++i) {
    auto unit = std::make_unique<fb::RestoredUnitT>();
    unit->unit = request.wants[i].unit;
    unit->version_lineage = plan.versions[i].snapshot.lineage;
    unit->version_step = plan.versions[i].snapshot.step;
    unit->note = texts.of(unit->unit, plan.versions[i].note);
    unit->memory_only = plan.versions[i].memory_only;
    units.push_back(std::move(unit));
  }
  return units;
}

fb::RestoreWindowT window_message(uint64_t restore, const Window& window) {
  fb::RestoreWindowT message;
  message.restore = restore;
  message.slab = window.slab;
  message.last = window.last;
  for (const WindowPiece& piece : window.pieces) {
    message.pieces.emplace_back(static_cast<uint32_t>(piece.want), piece.range.unit,
                                piece.range.offset, piece.range.length, piece.slab_offset,
                                piece.crc32c, static_cast<uint8_t>(piece.source));
  }
  message.notes = note_messages(window);
  return message;
}

fb::LocatedT located_message(uint64_t restore, const Window& window) {
  fb::LocatedT message;
  message.restore = restore;
  message.number = window.located->number;
  message.segment = window.located->container;
  message.fragments.reserve(window.located->fragments.size());
  for (const LocatedFragment& fragment : window.located->fragments) {
    message.fragments.emplace_back(fragment.file_offset, fragment.length, fragment.crc32c,
                                   static_cast<uint32_t>(fragment.pieces.size()));
    for (const WindowPiece& piece : fragment.pieces) {
      message.pieces.emplace_back(static_cast<uint32_t>(piece.want), piece.range.unit,
                                  piece.range.offset, piece.range.length, piece.slab_offset);
    }
  }
  message.notes = note_messages(window);
  return message;
}

}  // namespace ckptd
