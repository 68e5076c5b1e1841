// Names of a store's files, relative to its directory. Writers and readers share them.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "formats/base/ids.h"

namespace ckptd {

inline constexpr char kSegmentsDirectory[] = "segments";
inline constexpr char kJournalDirectory[] = "journal";
inline constexpr char kCatalogDirectory[] = "catalog";  // a RocksDB database
inline constexpr char kForeignCatalog[] = "foreign";    // catalog.foreign-N: of another store
inline constexpr char kJournalPath[] = "journal/journal.log";

inline std::string segment_path(ckpt::SegmentId segment) {
  return fmt::format("{}/{:06}.seg", kSegmentsDirectory, segment);
}

// The segment whose file has this name in the directory of segments; nullopt: not the name of a
// segment, so the file is not ckptd's.
inline std::optional<ckpt::SegmentId> segment_of_name(std::string_view name) {
  ckpt::SegmentId segment = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), segment);
  const bool ours = parsed.ec == std::errc() &&
                    segment_path(segment) == fmt::format("{}/{}", kSegmentsDirectory, name);
  return ours ? std::optional(segment) : std::nullopt;
}

// The reason text for a segment whose file is missing, and the file named by such a reason; empty:
// it is another reason. Reasons of damage are stored as text.
inline std::string missing_reason(ckpt::SegmentId segment) {
  return segment_path(segment) + " is missing";
}
inline std::string_view missing_file_of(std::string_view reason) {
  constexpr std::string_view kMissing = " is missing";
  if (!reason.ends_with(kMissing)) return {};
  reason.remove_suffix(kMissing.size());
  const size_t colon = reason.rfind(": ");
  if (colon != std::string_view::npos) reason.remove_prefix(colon + 2);
  const std::string folder = std::string(kSegmentsDirectory) + "/";
  return reason.starts_with(folder) ? reason : std::string_view();  // "its magic is missing"
}

}  // namespace ckptd
