// Names of a store's files, relative to its directory. Writers and readers share them.
#pragma once

#include <fmt/format.h>

#include <string>

#include "formats/base/ids.h"

namespace ckptd {

inline constexpr char kSegmentsDirectory[] = "segments";
inline constexpr char kJournalDirectory[] = "journal";
inline constexpr char kCatalogDirectory[] = "catalog";  // RocksDB's
inline constexpr char kForeignCatalog[] = "foreign";    // catalog.foreign-N: one of another store
inline constexpr char kJournalPath[] = "journal/journal.log";

inline std::string segment_path(ckpt::SegmentId segment) {
  return fmt::format("{}/{:06}.seg", kSegmentsDirectory, segment);
}

}  // namespace ckptd
