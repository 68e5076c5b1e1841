// Chooses the units of a snapshot to encode, so that the snapshot is durable as early as possible.
// Pure: the same figures give the same choice.
//
// Encoding runs beside the writes, so it costs time only if the threads are the bottleneck. The
// goal is the total time of the snapshot. Units that save the disk the most bytes per second of
// thread time come first.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ckptd {

// Measured effect of encoding on units of one kind.
struct CodecFigures {
  double ratio = 1;             // encoded size / raw size
  double bytes_per_second = 0;  // raw bytes, by one thread
};

// All units of one kind in a snapshot.
struct EncodeShare {
  enum class Wish : uint8_t { kNever, kAlways, kIfSooner };
  Wish wish = Wish::kIfSooner;
  uint64_t bytes = 0;
  std::optional<CodecFigures> figures;  // none: not measured yet
  bool encoded_so_far = false;          // in the previous snapshot
};

struct EncodeConditions {
  double disk_bytes_per_second = 0;  // 0: not measured yet
  uint64_t queued_bytes = 0;         // written before this snapshot
  unsigned threads = 1;              // for encoding
  uint64_t slab_bytes = 1;           // encoded as a whole before its write
};

// Estimated time until everything is written. An encoded share without figures counts as raw.
double seconds_to_durable(const std::vector<EncodeShare>& shares, const std::vector<bool>& encoded,
                          const EncodeConditions& conditions);

// One flag per share. Besides kAlways, only shares with figures that make the whole snapshot
// faster. A share that was not encoded so far must gain a minimum margin, so that noise in
// measurements changes nothing.
std::vector<bool> choose_encoded(const std::vector<EncodeShare>& shares,
                                 const EncodeConditions& conditions);

}  // namespace ckptd
