// Names of a store's files, relative to its directory. Writers and readers share them.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "formats/segment_path.h"

namespace ckptd {

using ckpt::kSegmentsDirectory;
using ckpt::missing_file_of;
using ckpt::missing_reason;
using ckpt::segment_path;

inline constexpr char kJournalDirectory[] = "journal";
inline constexpr char kCatalogDirectory[] = "catalog";  // a RocksDB database
inline constexpr char kForeignCatalog[] = "foreign";    // catalog.foreign-N: of another store
inline constexpr char kJournalPath[] = "journal/journal.log";

// The segment whose file has this name in the directory of segments; nullopt: not the name of a
// segment, so the file is not ckptd's.
inline std::optional<ckpt::SegmentId> segment_of_name(std::string_view name) {
  ckpt::SegmentId segment = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), segment);
  const bool ours = parsed.ec == std::errc() &&
                    segment_path(segment) == fmt::format("{}/{}", kSegmentsDirectory, name);
  return ours ? std::optional(segment) : std::nullopt;
}

}  // namespace ckptd
