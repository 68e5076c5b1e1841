// Windows whose bytes the reader takes from the segment's file. The daemon's message is checked
// here, so that no reader reads or scatters out of bounds.
#include <algorithm>

#include "client/src/restore.h"
#include "formats/base/checked.h"

namespace ckpt::lib {

// Checks that fragments are ascending and disjoint, within the requested size, each with pieces.
Status Restore::check_fragments(const fb::LocatedT& located) const {
  const auto wrong = [&](const std::string& what) {
    return make_error(ErrorCode::kCorrupt, "run {}: places in segment {}: {}", options_.run,
                      located.segment, what);
  };
  // The last block of a file offset must still have an end.
  constexpr uint64_t kFileBytesMax = uint64_t{1} << 62;
  uint64_t end = 0;
  uint64_t blocks_end = 0;
  uint64_t bytes = 0;
  uint64_t pieces = 0;
  for (const fb::LocatedFragment& fragment : located.fragments) {
    if (fragment.length() == 0 || fragment.pieces() == 0 || fragment.file_offset() < end ||
        !base::range_fits(fragment.file_offset(), fragment.length(), kFileBytesMax)) {
      return wrong(
          fmt::format("{} bytes at {} after {}", fragment.length(), fragment.file_offset(), end));
    }
    end = fragment.file_offset() + fragment.length();
    const uint64_t begin =
        std::max(blocks_end, base::align_down(fragment.file_offset(), kBlockBytes));
    blocks_end = base::align_up(end, kBlockBytes);
    bytes += blocks_end - begin;
    pieces += fragment.pieces();
  }
  if (located.fragments.empty() || bytes > options_.locate_bytes_max) {
    return wrong(fmt::format("{} bytes of blocks, at most {} were asked for", bytes,
                             options_.locate_bytes_max));
  }
  if (pieces != located.pieces.size()) {
    return wrong(fmt::format("{} pieces, announced were {}", located.pieces.size(), pieces));
  }
  return ok_status();
}

Result<RestorePiece> Restore::take_part(const fb::LocatedPiece& piece,
                                        const fb::LocatedFragment& of, LocatedFragment& fragment) {
  CKPT_TRY(check_range(piece.want(), piece.unit(), piece.offset(), piece.length()));
  const Want& want = wants_[piece.want()];
  if (!base::range_fits(piece.at(), piece.length(), of.length())) {
    return make_error(ErrorCode::kCorrupt, "{}: a piece lies outside its fragment",
                      name(want.range));
  }
  fragment.parts.push_back(
      {piece.want(), want.versions, piece.offset(), piece.offset() + piece.length()});
  return RestorePiece{want.range, piece.offset() - ranges_[want.range].offset, piece.length(),
                      of.file_offset() + piece.at(), 0};
}

Result<LentWindow> Restore::take_located(LocatedMessage message) {
  const fb::LocatedT& located = message.body;
  CKPT_TRY(take_notes(located.notes));
  CKPT_TRY(check_fragments(located));
  if (!message.file.valid()) {
    return make_error(ErrorCode::kCorrupt, "run {}: segment {} came without its file", options_.run,
                      located.segment);
  }
  LentWindow window;
  Lent lent;
  window.pieces.reserve(located.pieces.size());
  window.fragments.reserve(located.fragments.size());
  lent.fragments.reserve(located.fragments.size());
  for (const fb::LocatedFragment& fragment : located.fragments) {
    const size_t first = window.pieces.size();
    window.fragments.push_back(
        {fragment.file_offset(), fragment.length(), fragment.crc32c(), first, fragment.pieces()});
    LocatedFragment& parts = lent.fragments.emplace_back();
    parts.parts.reserve(fragment.pieces());
    for (size_t i = first; i < first + fragment.pieces(); ++i) {
      CKPT_ASSIGN(window.pieces.emplace_back(), take_part(located.pieces[i], fragment, parts));
    }
  }
  lent.number = located.number;
  lent.file = std::move(message.file);
  window.file = lent.file.get();
  window.segment = located.segment;
  window.id = next_window_++;
  lent_[window.id] = std::move(lent);
  return window;
}

void Restore::failed(uint64_t window, size_t fragment, const std::string& reason) {
  const auto found = lent_.find(window);
  if (found == lent_.end() || fragment >= found->second.fragments.size()) return;
  found->second.fragments[fragment].failed = true;
  if (found->second.reason.empty()) found->second.reason = reason;
}

void Restore::stop_locating(uint64_t window, const std::string& reason) {
  const auto found = lent_.find(window);
  if (found == lent_.end()) return;
  for (LocatedFragment& fragment : found->second.fragments) fragment.failed = true;
  found->second.stop = true;
  found->second.reason = reason;
}

// Counts the bytes of a read window that no other version has replaced.
void Restore::answer_located(Lent& lent) {
  fb::LocatedReadT answer;
  answer.restore = restore_;
  answer.number = lent.number;
  answer.stop = lent.stop;
  answer.reason = lent.reason;
  for (size_t i = 0; i < lent.fragments.size(); ++i) {
    if (lent.fragments[i].failed) {
      answer.failed.push_back(static_cast<uint32_t>(i));
      continue;
    }
    for (const LocatedFragment::Part& part : lent.fragments[i].parts) {
      Want& want = wants_[part.want];
      if (want.versions != part.version) continue;
      want.got.emplace_back(part.begin, part.end);
      restored_[want.range].bytes_disk += part.end - part.begin;
    }
  }
  session_.post(std::move(answer));
}

}  // namespace ckpt::lib
