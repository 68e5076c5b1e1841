#include "ckptd/io/disk.h"

#include <spdlog/spdlog.h>

#include "ckptd/io/engines.h"

namespace ckptd {

namespace {

Result<uint64_t> run_blocking(Disk& disk, IoRequest request) {
  std::optional<Result<uint64_t>> outcome;
  request.on_done = [&outcome](Result<uint64_t> result) { outcome = std::move(result); };
  disk.submit(std::move(request));
  while (!outcome.has_value()) {
    disk.wait();
    disk.reap();
  }
  return *std::move(outcome);
}

}  // namespace

namespace {
constexpr std::string_view kLostName = "somebody has removed or replaced this file";
}  // namespace

ckpt::Error lost_name_error(std::string_view path, std::string_view rescue) {
  return ckpt::make_error(ckpt::ErrorCode::kIo,
                          "{}: {} while ckptd uses it; before ckptd ends, bring it back by `{}`",
                          path, kLostName, rescue);
}

bool is_lost_name(std::string_view message) {
  return message.find(kLostName) != std::string_view::npos;
}

Result<uint64_t> read_blocking(Disk& disk, FileId file, uint64_t offset, MutableByteView memory) {
  return run_blocking(
      disk, IoRequest{.op = IoOp::kRead, .file = file, .offset = offset, .memory = memory});
}

Status write_blocking(Disk& disk, FileId file, uint64_t offset, ByteView memory) {
  // IoRequest has one memory member for both directions; a write only reads from it.
  const MutableByteView bytes{const_cast<std::byte*>(memory.data()), memory.size()};
  CKPT_TRY(run_blocking(
      disk, IoRequest{.op = IoOp::kWrite, .file = file, .offset = offset, .memory = bytes}));
  return {};
}

Status sync_blocking(Disk& disk, FileId file) {
  CKPT_TRY(run_blocking(disk, IoRequest{.op = IoOp::kSync, .file = file}));
  return {};
}

Result<std::unique_ptr<Disk>> open_disk(const DiskOptions& options) {
  if (options.engine == "pwritev") return open_pwritev_disk(options.root);
  if (options.engine != "uring") {
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                            "I/O engine {}: no such engine; there are uring and pwritev",
                            options.engine);
  }
  auto ring = open_uring_disk(options.root);
  if (ring.ok() || ring.error().code != ckpt::ErrorCode::kUnavailable) return ring;
  spdlog::warn("{}; using the pwritev engine", ring.error().message);
  return open_pwritev_disk(options.root);
}

}  // namespace ckptd
