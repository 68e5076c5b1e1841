// Size and number in flight of write requests. Measured once per store by writing to its disk,
// before clients are served, and stored in the store's directory.
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
// Like parse_io_shape(), or nullopt for "auto": to be measured.
Result<std::optional<IoShape>> parse_io_shape_choice(std::string_view text);
std::string to_text(const IoShape& shape);

// Monotonic time, read before and after a timed section.
using Stopwatch = std::function<std::chrono::nanoseconds()>;

struct MeasuredIoShape {
  IoShape shape;
  double bytes_per_second = 0;  // of this shape; 0: nothing was measured
};
// Writes up to 1 GiB to a new file, removes it again, and returns the fastest shape. Returns the
// default shape unless another one is 5 % faster, or if a few writes show that any shape saturates
// the disk (below 0.5 GB/s). Does not write to a disk with less than `free_bytes_min` free.
// Blocking: for startup, before anything else uses the disk.
Result<MeasuredIoShape> measure_io_shape(Disk& disk, uint64_t free_bytes_min,
                                         const Stopwatch& stopwatch);

// The shape stored in `root` for this engine and device; otherwise measures and stores one. Never
// fails: falls back to the default shape, with a warning.
IoShape find_io_shape(Disk& disk, const std::string& root, uint64_t free_bytes_min,
                      const Stopwatch& stopwatch);

}  // namespace ckptd
