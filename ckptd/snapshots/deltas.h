// Deltas: finds bases for the pieces of a slab. A base is held from here on, like a shared extent,
// and listed in the commit, so that it stays as long as the commit (shared_versions.h). Loop thread
// only. Reads of bases are over when the writes are: close Persist first.
#pragma once

#include <memory>
#include <vector>

#include "ckptd/dedup/base_reader.h"
#include "ckptd/snapshots/newest_cache.h"
#include "ckptd/snapshots/open_state.h"

namespace ckptd {

class Deltas {
 public:
  Deltas(const SnapshotNeeds& needs, RunNewestCache& newest)
      : needs_(needs), newest_(newest), reader_(needs.earlier, needs.options.dedup_bytes_min) {}

  // Null: no fragment can become a delta. As with shared extents, none can while versions are being
  // deleted, or while the index lacks such changes; nor if the journal has no room for the bases.
  // `left_out`: fragments that are not written; empty: none.
  std::shared_ptr<BaseSource> find_bases(const ckpt::SnapshotKey& key, OpenSnapshotState& open,
                                         const StagedSlab& slab, const std::vector<bool>& left_out);
  void tick(Time now) { reader_.tick(now); }
  uint64_t read_bytes() const { return reader_.read_bytes(); }  // since startup

 private:
  const SnapshotNeeds& needs_;
  RunNewestCache& newest_;
  BaseReader reader_;
};

}  // namespace ckptd
