// Data: bytes of any files, cut into training sequences.
//
// The vocabulary is the 256 byte values. Sequence i of step s is a pure function of (corpus, seed,
// s, i) through a counter-based generator: the step is the only cursor, and every rank gets the
// same sequence. The last part of the corpus is held out for evaluation and never trained on.
// A run therefore saves no data cursor.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/base/result.h"

namespace moetrain {

using ckpt::Result;
using ckpt::Status;

inline constexpr uint32_t kByteVocabulary = 256;
// One part in this many is held out.
inline constexpr uint64_t kHeldOutDivisor = 20;

// The bytes of files, in the given order; a directory stands for all regular files below it, sorted
// by path, without hidden ones (a leading dot) and build folders.
class Corpus {
 public:
  // Errors name the path and are kInvalidArgument: it is missing, unreadable, not a regular
  // file, is empty, or a directory holds no file. `total_bytes_max` bounds what is read.
  static Result<Corpus> load(const std::vector<std::string>& paths,
                             uint64_t total_bytes_max = 1ull << 30);
  explicit Corpus(std::vector<uint8_t> bytes);

  // The training text, and the held-out tail.
  std::span<const uint8_t> train() const { return std::span(bytes_).first(train_bytes_); }
  std::span<const uint8_t> held_out() const { return std::span(bytes_).subspan(train_bytes_); }
  uint64_t bytes() const { return bytes_.size(); }
  // CRC32C of all bytes: tells whether a run continues with its initial data.
  uint32_t crc32c() const { return crc32c_; }
  // check_data_fits() for these bytes and the paths they were loaded from.
  Status check_fits(uint32_t seq_len) const;

 private:
  std::vector<std::string> paths_;  // of load(); for messages
  std::vector<uint8_t> bytes_;
  uint64_t train_bytes_ = 0;
  uint32_t crc32c_ = 0;
};

// kInvalidArgument unless both parts of a corpus of this size hold at least one sequence of
// `seq_len` tokens and its next. The message names `paths` and the size that is needed.
Status check_data_fits(const std::vector<std::string>& paths, uint64_t bytes, uint32_t seq_len);

// The project's own sources: $CKPT_SOURCE_DIR, or the checkout the program was built in,
// if it is still there. kInvalidArgument otherwise.
Result<std::vector<std::string>> default_data_paths();

// Offset of sequence `index` of step `step` in `bytes` of text, so that seq_len + 1 bytes fit.
uint64_t sequence_offset(uint64_t seed, uint64_t step, uint64_t index, uint64_t bytes,
                         uint32_t seq_len);

// Writes sequences [first, first + count) of a step, row-major [count, seq_len]: tokens, and as
// targets the same text one byte later. Both spans hold count * seq_len values.
void fill_sequences(std::span<const uint8_t> text, uint64_t seed, uint64_t step, uint64_t first,
                    uint64_t count, uint32_t seq_len, std::span<int32_t> tokens,
                    std::span<int32_t> targets);

}  // namespace moetrain
