#include "ckptd/io/io_shape.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <random>

#include "ckptd/io/huge_pages.h"
#include "formats/arena.h"
#include "formats/base/parse.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// The default shape first. The gain from larger requests and a shorter queue differs between disks;
// more bytes in flight than this only increase latency.
constexpr std::array<IoShape, 4> kCandidates = {IoShape{},
                                                {.depth = 32, .bytes = 1u << 20},
                                                {.depth = 8, .bytes = 4u << 20},
                                                {.depth = 8, .bytes = 16u << 20}};
constexpr int kRounds = 2;
constexpr uint64_t kSampleBytes = 128u << 20;
constexpr uint64_t kMemoryBytes = 16u << 20;
constexpr double kGainMin = 1.05;
constexpr double kSlowBytesPerSecond = 0.5e9;

constexpr char kScratchPath[] = "calibration.bytes";
constexpr char kRememberedName[] = "io-shape";
constexpr size_t kRememberedBytesMax = 128;

// Bytes per second of one sample at `offset`, from the first write to the last completion.
Result<double> write_sample(Disk& disk, FileId file, uint64_t offset, const IoShape& shape,
                            MutableByteView memory, const Stopwatch& stopwatch) {
  uint64_t submitted = 0;
  uint64_t in_flight = 0;
  Status outcome;
  const auto start = stopwatch();
  while (submitted < kSampleBytes || in_flight > 0) {
    while (outcome.ok() && submitted < kSampleBytes && in_flight < shape.depth) {
      IoRequest request{.op = IoOp::kWrite, .file = file, .offset = offset + submitted};
      request.memory = memory.subspan(submitted % memory.size(), shape.bytes);
      request.on_done = [&](const Result<uint64_t>& result) {
        --in_flight;
        if (!result.ok()) outcome = result.error();
      };
      ++in_flight;
      submitted += shape.bytes;
      disk.submit(std::move(request));
    }
    if (!outcome.ok() && in_flight == 0) return outcome.error();
    disk.wait();
    disk.reap();
  }
  CKPT_TRY(outcome);
  const std::chrono::duration<double> elapsed = stopwatch() - start;
  return kSampleBytes / std::max(elapsed.count(), 1e-9);
}

// Memory as in arenas: requests from small pages have another best shape.
Result<ckpt::ArenaMapping> incompressible_bytes() {
  CKPT_ASSIGN(auto arena,
              ckpt::ArenaMapping::create({.slab_bytes = kMemoryBytes, .slab_count = 1}));
  const MutableByteView bytes = arena.mapping.bytes();
  make_huge_pages(bytes);
  std::mt19937_64 random(1);
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    ckpt::base::store(bytes.data() + at, random());
  }
  return std::move(arena.mapping);
}

Result<MeasuredIoShape> measure_in(Disk& disk, FileId file, const Stopwatch& stopwatch) {
  CKPT_ASSIGN(const auto memory, incompressible_bytes());
  std::array<double, kCandidates.size()> best{};
  uint64_t offset = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < kCandidates.size(); ++i, offset += kSampleBytes) {
      CKPT_ASSIGN(const double speed,
                  write_sample(disk, file, offset, kCandidates[i], memory.bytes(), stopwatch));
      best[i] = std::max(best[i], speed);
      if (speed < kSlowBytesPerSecond && i == 0) {
        return MeasuredIoShape{.shape = kCandidates[0], .bytes_per_second = best[0]};
      }
    }
  }
  const size_t fastest =
      static_cast<size_t>(std::max_element(best.begin(), best.end()) - best.begin());
  const size_t chosen = best[fastest] > best[0] * kGainMin ? fastest : 0;
  return MeasuredIoShape{.shape = kCandidates[chosen], .bytes_per_second = best[chosen]};
}

// "uring 259:1 arena": a shape belongs to an engine on a device, measured with such memory.
// nullopt: stat of the root failed.
std::optional<std::string> place_of(const Disk& disk, const std::string& root) {
  struct stat status {};
  if (::stat(root.c_str(), &status) != 0) return std::nullopt;
  return fmt::format("{} {}:{} arena", disk.engine_name(), major(status.st_dev),
                     minor(status.st_dev));
}

// The stored shape for this place; nullopt if there is none, or one for another place.
std::optional<IoShape> remembered(const std::string& path, const std::string& place) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;  // a FIFO would block
  std::ifstream file(path, std::ios::binary);
  std::string text(kRememberedBytesMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.substr(space + 1) != place + "\n") return std::nullopt;
  const auto shape = parse_io_shape(std::string_view(text).substr(0, space));
  if (!shape.ok()) return std::nullopt;
  return *shape;
}

// After a crash in the middle of this, the shape is measured again.
void remember(const std::string& path, const std::string& place, const IoShape& shape) {
  const std::string unfinished = path + ".new";
  std::error_code error;
  std::filesystem::remove(unfinished, error);  // whatever type of file it is
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  file << to_text(shape) << ' ' << place << '\n';
  file.close();
  if (file) std::filesystem::rename(unfinished, path, error);
  if (!file || error) spdlog::warn("{}: could not be written", path);
}

}  // namespace

Result<IoShape> parse_io_shape(std::string_view text) {
  const auto wrong = [&] {
    return make_error(ErrorCode::kInvalidArgument,
                      "\"{}\": should be a number of requests, 1 to {}, and their size, 64KiB to "
                      "64MiB in blocks of 4KiB, such as \"32x4MiB\"",
                      text, limits::kRingEntries);
  };
  IoShape shape;
  const auto depth = std::from_chars(text.data(), text.data() + text.size(), shape.depth);
  const char* const end = text.data() + text.size();
  if (depth.ec != std::errc() || depth.ptr == end || *depth.ptr != 'x') return wrong();
  const auto bytes = ckpt::base::parse_size(std::string_view(depth.ptr + 1, end));
  if (!bytes.ok()) return wrong();
  shape.bytes = *bytes;
  const bool fits = shape.depth >= 1 && shape.depth <= limits::kRingEntries &&
                    shape.bytes >= (64u << 10) && shape.bytes <= (64u << 20) &&
                    shape.bytes % ckpt::kBlockBytes == 0;
  if (!fits) return wrong();
  return shape;
}

Result<std::optional<IoShape>> parse_io_shape_choice(std::string_view text) {
  if (text == "auto") return std::optional<IoShape>();
  CKPT_ASSIGN(const IoShape shape, parse_io_shape(text));
  return std::optional(shape);
}

std::string to_text(const IoShape& shape) {
  const bool whole = shape.bytes % (1u << 20) == 0;
  return fmt::format("{}x{}{}", shape.depth, shape.bytes >> (whole ? 20 : 10),
                     whole ? "MiB" : "KiB");
}

Result<MeasuredIoShape> measure_io_shape(Disk& disk, uint64_t free_bytes_min,
                                         const Stopwatch& stopwatch) {
  constexpr uint64_t kFileBytes = kSampleBytes * kCandidates.size() * kRounds;
  // Leftover of an interrupted startup: its space may be what the disk lacks.
  (void)disk.remove(kScratchPath);
  CKPT_ASSIGN(const Disk::Space space, disk.space());
  if (space.free_bytes < std::max(free_bytes_min, kFileBytes)) return MeasuredIoShape{};
  CKPT_ASSIGN(Disk::NewFile created, disk.create_file(kScratchPath, kFileBytes));
  const FileId file = disk.adopt(std::move(created));
  auto measured = measure_in(disk, file, stopwatch);
  disk.close(file);
  CKPT_TRY(disk.remove(kScratchPath));
  return measured;
}

IoShape find_io_shape(Disk& disk, const std::string& root, uint64_t free_bytes_min,
                      const Stopwatch& stopwatch) {
  const std::string path = fmt::format("{}/{}", root, kRememberedName);
  const auto place = place_of(disk, root);
  if (place.has_value()) {
    if (const auto shape = remembered(path, *place)) return *shape;
  }
  const auto measured = measure_io_shape(disk, free_bytes_min, stopwatch);
  if (!measured.ok()) {
    spdlog::warn("disk: how to write to it was not measured: {}", measured.error().message);
    return {};
  }
  if (measured->bytes_per_second == 0) {
    spdlog::info("disk: how to write to it was not measured, it is nearly full");
    return {};
  }
  spdlog::info("disk: written to in {} ({:.2f} GB/s)", to_text(measured->shape),
               measured->bytes_per_second / 1e9);
  if (place.has_value()) remember(path, *place, measured->shape);
  return measured->shape;
}

}  // namespace ckptd
