#include <ckpt/ckpt_direct.h>

#include "client/src/c_api.h"

struct ckpt_restore {
  ckpt_session* session;
  size_t restored_size;  // sizeof(ckpt_restored) in the caller's header
  std::unique_ptr<ckpt::lib::Restore> restore;
  // Result of the last ckpt_restore_next.
  ckpt::lib::LentWindow window;
  std::vector<ckpt_restore_piece> pieces;
  std::vector<ckpt_restore_fragment> fragments;
};

namespace ckpt::lib {
namespace {

constexpr uint32_t kRestoreTimeoutMs = 60'000;

Result<RestoreOptions> restore_options(const Session& session, const ckpt_restore_options* from) {
  const ckpt_restore_options raw = copy_options(from);
  RestoreOptions options;
  options.run = raw.run != nullptr ? raw.run : session.options().run;
  CKPT_TRY(validate_name("run", options.run));
  options.lineage = raw.lineage;
  options.step = raw.step;
  options.latest = raw.latest != 0;
  options.tag = raw.tag != nullptr ? raw.tag : "";
  options.exact = raw.exact != 0;
  options.timeout_ms = or_default(raw.timeout_ms, kRestoreTimeoutMs);
  options.newest = raw.newest != 0;
  options.memory = raw.memory != 0;
  if (options.newest && (options.latest || !options.tag.empty())) {
    return make_error(ErrorCode::kInvalidArgument,
                      "run {}: `newest` goes with a step, not with `latest` or a tag", options.run);
  }
  options.locate_bytes_max = raw.locate_bytes_max;
  options.locate_required = raw.locate_bytes_max > 0 && raw.direct == CKPT_DIRECT_REQUIRED;
  return options;
}

// Size of an entry of the answers: sizeof(ckpt_restored) in the caller's header.
size_t restored_size(const ckpt_restore_options* options) {
  const size_t size = copy_options(options).restored_size;
  return size != 0 ? size : offsetof(ckpt_restored, level);
}

// Fills the caller's entries. Their notes point to memory of the session.
void answer(ckpt_session& session, std::vector<RestoredRange> found, ckpt_restored* restored,
            size_t size) {
  session.restored = std::move(found);
  auto* to = reinterpret_cast<std::byte*>(restored);
  for (size_t i = 0; to != nullptr && i < session.restored.size(); ++i, to += size) {
    const RestoredRange& range = session.restored[i];
    const ckpt_restored one{range.version_lineage,
                            range.version_step,
                            range.note.empty() ? nullptr : range.note.c_str(),
                            range.bytes_memory,
                            range.bytes_disk,
                            range.memory_only ? CKPT_LEVEL_STAGED : CKPT_LEVEL_DURABLE};
    std::memcpy(to, &one, std::min(size, sizeof one));
  }
}

Status read_ranges(ckpt_session& session, const ckpt_restore_options* from,
                   const ckpt_range* ranges, size_t count, ckpt_restored* restored) {
  if (ranges == nullptr && count > 0) return missing("ranges");
  CKPT_ASSIGN(RestoreOptions options, restore_options(*session.session, from));
  options.locate_bytes_max = 0;  // the arena fills host memory
  options.locate_required = false;
  std::vector<RestoreRange> wanted;
  wanted.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const ckpt_range& range = ranges[i];
    if (range.data == nullptr && range.length > 0) return missing("data of a range");
    wanted.push_back(
        {{range.unit, range.offset, range.length}, static_cast<std::byte*>(range.data)});
  }
  CKPT_ASSIGN(std::vector<RestoredRange> found, restore_read(*session.session, options, wanted));
  answer(session, std::move(found), restored, restored_size(from));
  return ok_status();
}

}  // namespace
}  // namespace ckpt::lib

using namespace ckpt;       // NOLINT(google-build-using-namespace): this file is the ABI's other
using namespace ckpt::lib;  // NOLINT(google-build-using-namespace): side, nothing includes it

ckpt_status ckpt_restore_read(ckpt_session* session, const ckpt_restore_options* options,
                              const ckpt_range* ranges, size_t count, ckpt_restored* restored) {
  return run_call(*session->session,
                  [&] { return read_ranges(*session, options, ranges, count, restored); });
}

ckpt_status ckpt_restore_begin(ckpt_session* session, const ckpt_restore_options* options,
                               const ckpt_range* ranges, size_t count, ckpt_restore** restore) {
  return run_call(*session->session, [&]() -> Status {
    if (restore == nullptr || (ranges == nullptr && count > 0)) return missing("ranges or restore");
    *restore = nullptr;
    CKPT_ASSIGN(RestoreOptions converted, restore_options(*session->session, options));
    std::vector<UnitRange> wanted;
    wanted.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      wanted.push_back({ranges[i].unit, ranges[i].offset, ranges[i].length});
    }
    auto handle = std::make_unique<ckpt_restore>();
    handle->session = session;
    handle->restored_size = restored_size(options);
    CKPT_ASSIGN(handle->restore,
                Restore::begin(*session->session, std::move(converted), std::move(wanted)));
    *restore = handle.release();
    return ok_status();
  });
}

ckpt_status ckpt_restore_next(ckpt_restore* restore, uint32_t timeout_ms,
                              ckpt_restore_window* window) {
  return run_call(*restore->session->session, [&]() -> Status {
    if (window == nullptr) return missing("window");
    CKPT_ASSIGN(restore->window, restore->restore->next(Deadline::after_ms(timeout_ms)));
    const LentWindow& lent = restore->window;
    restore->session->session->arena().pin();  // lent bytes stay mapped, even after a new daemon
    restore->pieces.clear();
    restore->pieces.reserve(lent.pieces.size());
    for (const RestorePiece& piece : lent.pieces) {
      restore->pieces.push_back({piece.range, piece.offset, piece.length, piece.at, piece.crc32c});
    }
    ckpt_restore_window out{};
    out.id = lent.id;
    out.complete = lent.complete ? 1 : 0;
    out.data = lent.bytes.data();
    out.bytes = lent.bytes.size();
    out.pieces = restore->pieces.data();
    out.piece_count = restore->pieces.size();
    copy_out(out, window);
    return ok_status();
  });
}

void ckpt_restore_release(ckpt_restore* restore, uint64_t window_id) {
  restore->restore->release(window_id);
}

void ckpt_restore_mismatch(ckpt_restore* restore, uint64_t window_id,
                           const ckpt_restore_piece* piece) {
  restore->restore->mismatch(
      window_id, {piece->range, piece->offset, piece->length, piece->at, piece->crc32c});
}

ckpt_status ckpt_restore_file(ckpt_restore* restore, ckpt_restore_located* located) {
  return run_call(*restore->session->session, [&]() -> Status {
    if (located == nullptr) return missing("located");
    const LentWindow& lent = restore->window;
    if (lent.file < 0) {
      return make_error(ErrorCode::kFailedPrecondition, "the window's bytes are not in a file");
    }
    restore->fragments.clear();
    restore->fragments.reserve(lent.fragments.size());
    for (const RestoreFragment& fragment : lent.fragments) {
      restore->fragments.push_back({fragment.file_offset, fragment.length, fragment.first_piece,
                                    fragment.piece_count, fragment.crc32c});
    }
    ckpt_restore_located out{};
    out.file = lent.file;
    out.segment = lent.segment;
    out.fragments = restore->fragments.data();
    out.fragment_count = restore->fragments.size();
    copy_out(out, located);
    return ok_status();
  });
}

void ckpt_restore_failed(ckpt_restore* restore, uint64_t window_id, size_t fragment,
                         const char* reason) {
  const std::string text = reason != nullptr ? reason : "";
  if (fragment == CKPT_ALL_FRAGMENTS) return restore->restore->stop_locating(window_id, text);
  restore->restore->failed(window_id, fragment, text);
}

const char* ckpt_restore_not_located(const ckpt_restore* restore) {
  const std::string& reason = restore->restore->not_located();
  return reason.empty() ? nullptr : reason.c_str();
}

ckpt_status ckpt_restore_end(ckpt_restore* restore, ckpt_restored* restored) {
  return run_call(*restore->session->session, [&]() -> Status {
    CKPT_ASSIGN(std::vector<RestoredRange> found, restore->restore->finish());
    answer(*restore->session, std::move(found), restored, restore->restored_size);
    return ok_status();
  });
}

void ckpt_restore_free(ckpt_restore* restore) { delete restore; }
