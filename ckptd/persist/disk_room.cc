#include "ckptd/persist/disk_room.h"

#include <algorithm>

#include "formats/base/parse.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::ErrorDetail;
using ckpt::base::format_size;

namespace {

constexpr std::string_view kDiskFull = "disk full";
constexpr std::string_view kDiskRemedy =
    "look at the kernel's log (dmesg); if it fails again, move the data directory to another disk";

std::string place_of(const Disk::Space& space) {
  if (space.directory.empty()) return "the store's disk";
  return fmt::format("{} (file system {})", space.directory, space.mount_point);
}

}  // namespace

uint64_t DiskRoom::available_bytes() const {
  const uint64_t there =
      space.free_bytes - std::min(space.free_bytes, reserve_bytes) + prepared_bytes;
  return there - std::min(there, promised_bytes);
}

std::string disk_full_cause(const DiskShortage& shortage) {
  const DiskRoom& room = shortage.room;
  std::string text =
      fmt::format("{}: No space left on device: {}: ", kDiskFull, place_of(room.space));
  if (shortage.of_journal) {
    return text + fmt::format("the journal needs {} more and cannot grow, {} are free",
                              format_size(shortage.needed_bytes),
                              format_size(room.space.free_bytes));
  }
  text += shortage.needed_bytes > 0
              ? fmt::format("{} needed, {} available", format_size(shortage.needed_bytes),
                            format_size(room.available_bytes()))
              : fmt::format("{} available", format_size(room.available_bytes()));
  text +=
      fmt::format(" ({} free, of which disk_reserve keeps {}", format_size(room.space.free_bytes),
                  format_size(std::min(room.space.free_bytes, room.reserve_bytes)));
  if (room.prepared_bytes > 0) {
    text += fmt::format("; {} left in open segments", format_size(room.prepared_bytes));
  }
  if (room.promised_bytes > 0) {
    text += fmt::format("; {} promised to other snapshots", format_size(room.promised_bytes));
  }
  return text + ")";
}

std::string disk_full_remedy(const DiskRoom& room) {
  std::string text =
      "delete commits (ckptctl prune RUN --keep-last N, then ckptctl gc) or other files there";
  if (room.reserve_bytes > 0 && room.space.free_bytes > 0) {
    text += fmt::format(", or start ckptd with a smaller --disk-reserve ({})",
                        format_size(room.reserve_bytes));
  }
  return text;
}

ckpt::Error disk_full_error(const DiskShortage& shortage) {
  return with_detail(ckpt::make_error(ErrorCode::kResourceExhausted, "{}; {}",
                                      disk_full_cause(shortage), disk_full_remedy(shortage.room)),
                     shortage.of_journal ? ErrorDetail::kJournalFull : ErrorDetail::kDiskFull);
}

ckpt::Error disk_full_error(const DiskRoom& room, const ckpt::Error& error, ErrorDetail unwritten) {
  if (error.code != ErrorCode::kResourceExhausted || is_disk_full(error.message)) return error;
  return with_detail(
      ckpt::make_error(error.code, "{}: {}: {} ({} free); {}", kDiskFull, place_of(room.space),
                       error.message, format_size(room.space.free_bytes), disk_full_remedy(room)),
      unwritten);
}

ckpt::Error disk_failed_error(const ckpt::Error& error) {
  const bool told = error.message.find(kDiskRemedy) != std::string::npos;
  if (error.code != ErrorCode::kIo || told) return error;
  return with_detail(ckpt::make_error(error.code, "{}; {}", error.message, kDiskRemedy),
                     error.detail);
}

bool is_disk_full(std::string_view message) {
  return message.substr(0, kDiskFull.size()) == kDiskFull;
}

}  // namespace ckptd
