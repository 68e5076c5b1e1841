// Segment files of a store: their paths in it, and the reasons that name one of them.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "formats/base/ids.h"

namespace ckpt {

inline constexpr char kSegmentsDirectory[] = "segments";

inline std::string segment_path(SegmentId segment) {
  return fmt::format("{}/{:06}.seg", kSegmentsDirectory, segment);
}

// The reason text for a segment whose file is missing, and the file named by such a reason; empty:
// it is another reason. Reasons of damage are stored as text.
inline std::string missing_reason(SegmentId segment) {
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

}  // namespace ckpt
