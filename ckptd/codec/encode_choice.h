// Which units of a snapshot to encode, so that it is durable as soon as it can be. Pure: the same
// figures, the same choice.
//
// Encoding runs beside the writes, so it costs time only where the threads are the bottleneck: what
// counts is how long the snapshot takes as a whole. The units that save the disk most bytes for a
// second of a thread come first.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ckptd {

// What encoding does to units that are alike, as it was measured.
struct CodecFigures {
  double ratio = 1;             // what is left of a byte
  double bytes_per_second = 0;  // encoded by one thread
};

// Units of a snapshot that are alike.
struct EncodeShare {
  enum class Wish : uint8_t { kNever, kAlways, kIfSooner };
  Wish wish = Wish::kIfSooner;
  uint64_t bytes = 0;
  std::optional<CodecFigures> figures;  // none: they were not measured yet
  bool encoded_so_far = false;          // in the snapshot before
};

struct EncodeConditions {
  double disk_bytes_per_second = 0;  // 0: it was not measured yet
  uint64_t queued_bytes = 0;         // that the disk has to write first
  unsigned threads = 1;              // that encode
  uint64_t slab_bytes = 1;           // encoded as a whole before any of it is written
};

// Until all of it is written, about. A share that is encoded and has no figures counts as it is.
double seconds_to_durable(const std::vector<EncodeShare>& shares, const std::vector<bool>& encoded,
                          const EncodeConditions& conditions);

// One flag for each share. Besides those that always are, only what has figures, and makes the
// whole faster than it is without. What was not encoded so far has to be worth it by a margin, so
// that noise in what was measured changes nothing.
std::vector<bool> choose_encoded(const std::vector<EncodeShare>& shares,
                                 const EncodeConditions& conditions);

}  // namespace ckptd
