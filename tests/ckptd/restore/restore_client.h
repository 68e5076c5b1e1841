// RestoreClient: the client's side of a restore. Copies windows out of its arena, reads located
// fragments from their files, and answers.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "ckptd/restore/restore.h"
#include "formats/base/checked.h"
#include "formats/base/crc32c.h"

namespace ckptd {

// Result of a whole restore: the last bytes delivered for every want.
struct Restored {
  std::optional<ckpt::Error> error;
  std::vector<std::vector<std::byte>> wants;
  std::vector<ckpt::SnapshotKey> served_by;  // per want, notes included
  std::vector<std::string> notes;
  std::map<SourceId, uint64_t> bytes;
  uint64_t bytes_located = 0;
  size_t windows = 0;
  size_t located_windows = 0;
  bool last = false;
};

class RestoreClient {
 public:
  // `memory` returns the bytes of a slab in the client's arena.
  explicit RestoreClient(std::function<ckpt::MutableByteView(uint32_t slab)> memory)
      : memory_(std::move(memory)) {}

  // Starts the job, answers its located windows, and closes it. `run` runs the loop until nothing
  // is left to do. The job passes its windows to receive().
  void restore(RestoreJob& job, Restored& restored, const std::function<void()>& run) {
    job_ = &job;
    if (locate_bytes_max > 0) job.locate(locate_bytes_max);
    job.start();
    EXPECT_EQ(restored.windows, 0u) << "a window inside start()";
    run();
    if (forget_answers) answers_.clear();
    while (!answers_.empty()) {
      const size_t one = answer_order() % answers_.size();
      std::swap(answers_[one], answers_.back());
      restored.bytes_located += job.located_read(answers_.back());
      answers_.pop_back();
      run();
    }
    bool closed = false;
    job.close([&] { closed = true; });
    EXPECT_FALSE(closed);
    run();
    EXPECT_TRUE(closed);
    job_ = nullptr;
  }
  void receive(Result<Window> window, const std::vector<ckpt::UnitRange>& wants,
               Restored& restored) {
    ASSERT_FALSE(restored.last) << "something came after the last window";
    ASSERT_FALSE(restored.error.has_value()) << "something came after the error";
    if (!window.ok()) {
      restored.error = window.error();
      return;
    }
    restored.windows += 1;
    restored.last = window->last;
    for (const RestoreNote& note : window->notes) {
      for (const size_t want : note.wants) restored.served_by[want] = note.snapshot;
      restored.notes.push_back(note.note);
    }
    for (const WindowPiece& piece : window->pieces) copy_out(*window, piece, wants, restored);
    if (window->located) {
      restored.located_windows += 1;
      read_located(*window->located, wants, restored);
    } else if (!hold_windows) {
      job_->release(window->slab);
    }
  }

  bool hold_windows = false;  // windows are never released
  // The client reads segments itself, and answers in any order once nothing else happens.
  uint64_t locate_bytes_max = 0;
  std::mt19937_64 answer_order{1};
  size_t located_at_once = 0;   // most windows that waited for their answer
  bool forget_answers = false;  // the client never answers
  // True if the client fails to read this fragment; may change the answer, too.
  std::function<bool(const Located&, size_t fragment, LocatedAnswer&)> fails_to_read;

 private:
  void read_located(const Located& located, const std::vector<ckpt::UnitRange>& wants,
                    Restored& restored) {
    LocatedAnswer answer{.number = located.number, .failed = {}, .reason = "no light"};
    uint64_t blocks = 0;
    uint64_t blocks_end = 0;
    uint64_t end = 0;
    for (size_t i = 0; i < located.fragments.size(); ++i) {
      const LocatedFragment& fragment = located.fragments[i];
      ASSERT_GE(fragment.file_offset, end) << "not ascending";
      end = fragment.file_offset + fragment.length;
      const uint64_t begin =
          std::max(blocks_end, ckpt::base::align_down(fragment.file_offset, ckpt::kBlockBytes));
      blocks_end = ckpt::base::align_up(end, ckpt::kBlockBytes);
      blocks += blocks_end - begin;
      std::vector<std::byte> bytes(fragment.length);
      const ssize_t got = ::pread(located.file, bytes.data(), bytes.size(),
                                  static_cast<off_t>(fragment.file_offset));
      const bool fails = fails_to_read && fails_to_read(located, i, answer);
      if (fails || got != static_cast<ssize_t>(bytes.size()) ||
          ckpt::base::crc32c(bytes) != fragment.crc32c) {
        answer.failed.push_back(static_cast<uint32_t>(i));
        continue;
      }
      for (const WindowPiece& piece : fragment.pieces) {
        ASSERT_LE(piece.slab_offset + piece.range.length, fragment.length);
        place(ckpt::ByteView(bytes).subspan(piece.slab_offset, piece.range.length), piece, wants,
              restored);
      }
    }
    EXPECT_LE(blocks, locate_bytes_max);
    answers_.push_back(std::move(answer));
    located_at_once = std::max(located_at_once, answers_.size());
  }
  void copy_out(const Window& window, const WindowPiece& piece,
                const std::vector<ckpt::UnitRange>& wants, Restored& restored) {
    const auto bytes = memory_(window.slab).subspan(piece.slab_offset, piece.range.length);
    ASSERT_EQ(ckpt::base::crc32c(bytes), piece.crc32c);
    place(bytes, piece, wants, restored);
    restored.bytes[piece.source] += piece.range.length;
  }
  static void place(ckpt::ByteView bytes, const WindowPiece& piece,
                    const std::vector<ckpt::UnitRange>& wants, Restored& restored) {
    const ckpt::UnitRange& want = wants[piece.want];
    ASSERT_EQ(piece.range.unit, want.unit);
    ASSERT_GE(piece.range.offset, want.offset);
    ASSERT_LE(piece.range.offset + piece.range.length, want.offset + want.length);
    std::ranges::copy(bytes, restored.wants[piece.want].begin() +
                                 static_cast<ptrdiff_t>(piece.range.offset - want.offset));
  }

  const std::function<ckpt::MutableByteView(uint32_t slab)> memory_;
  RestoreJob* job_ = nullptr;
  std::vector<LocatedAnswer> answers_;
};

}  // namespace ckptd
