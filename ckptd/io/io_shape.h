// How the disk is written to: requests of which size, how many at a time. Found once for each store
// by writing to its disk, before anybody is served, and remembered beside the store.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "ckptd/io/disk.h"
#include "ckptd/limits.h"

namespace ckptd {

struct IoShape {
  unsigned depth = limits::kWriteDepth;  // requests in flight
  uint64_t bytes = limits::kWritePieceBytes;
  friend bool operator==(const IoShape&, const IoShape&) = default;
};

// "32x4MiB", and back.
Result<IoShape> parse_io_shape(std::string_view text);
// The same, or "auto": nullopt, to be found.
Result<std::optional<IoShape>> parse_io_shape_choice(std::string_view text);
std::string to_text(const IoShape& shape);

// Called before and after what is timed.
using Stopwatch = std::function<std::chrono::nanoseconds()>;

struct MeasuredIoShape {
  IoShape shape;
  double bytes_per_second = 0;  // that it was written with; 0: nothing was measured
};
// Writes up to 1 GiB to a new file, which is removed again, and returns the shape that was fastest;
// the usual one unless another is faster by 5 %, or where a few writes of it show that the disk is
// one that anything keeps busy (below 0.5 GB/s). A disk with less than `free_bytes_min` free is not
// written to. Blocking: for the start, before anything else uses the disk.
Result<MeasuredIoShape> measure_io_shape(Disk& disk, uint64_t free_bytes_min,
                                         const Stopwatch& stopwatch);

// What was remembered in `root` of this engine on this device, or else what is measured now, and
// remembered. Never fails: with a warning it is the usual one.
IoShape find_io_shape(Disk& disk, const std::string& root, uint64_t free_bytes_min,
                      const Stopwatch& stopwatch);

}  // namespace ckptd
