// Finds the place of a fragment on disk, for tests that damage it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "ckptd/history/recovered_store.h"
#include "ckptd/io/store_paths.h"
#include "tests/ckptd/daemon/world.h"

namespace ckptd::testing {

struct PlaceOfFragment {
  std::string path;
  uint64_t extent_offset = 0;  // of the header before it
  uint64_t offset = 0;
};

// The last fragment of this unit or blob in the commit of this step.
inline PlaceOfFragment place_of_fragment(World& world, ckpt::Step step, ckpt::UnitId unit) {
  PlaceOfFragment found;
  const FileId file = world.disk().open(kJournalPath, {}).value();
  const auto scan = scan_journal_file(world.disk(), file, [&](uint64_t, const auto& record) {
    const auto* commit = record.body.AsCommitted();
    if (commit == nullptr || commit->step != step) return Status();
    auto fragments = commit->fragments;
    fragments.insert(fragments.end(), commit->blob_fragments.begin(), commit->blob_fragments.end());
    for (const ckpt::fb::Fragment& fragment : fragments) {
      if (fragment.unit() != unit) continue;
      const auto& extent = *commit->extents[fragment.extent()];
      found = {segment_path(extent.segment), extent.offset,
               extent.offset + extent.header_bytes + fragment.payload_offset()};
    }
    return Status();
  });
  EXPECT_TRUE(scan.ok());
  world.disk().close(file);
  return found;
}
// The file and offset of the fragment.
inline std::pair<std::string, uint64_t> fragment_place(World& world, ckpt::Step step,
                                                       ckpt::UnitId unit) {
  const PlaceOfFragment place = place_of_fragment(world, step, unit);
  return {place.path, place.offset};
}

}  // namespace ckptd::testing
