// Recode of old extents: when it may run, and which extents may move.
#include <algorithm>

#include "ckptd/daemon_impl.h"

namespace ckptd {

void Daemon::Impl::start_recoder() {
  recoder = std::make_unique<Recoder>(
      restore_context(), *catalog, *persist,
      Recoder::Options{
          .after = options.recode_after,
          .bytes_per_second = options.scrub_bytes_per_second,
          .wall_clock_ns = options.wall_clock_ns,
          .others_busy = [this] { return disk_wanted(); },
          .may_begin = [this] { return may_read_back() && journal->health().ok(); },
          .held =
              [this](ckpt::RunId run, ViewPoint point) {
                return std::ranges::any_of(open_snapshots, [&](const auto& open) {
                  return open.first.run == run && open.second.same.commits.contains(point);
                });
              },
          .may_record =
              [this] {
                return !draining && !administering && catalog_current() && journal->health().ok();
              },
          .on_moved = [this](uint64_t sequence,
                             const fb::RecordT& record) { apply(sequence, record); }});
}

// Versions of the run are changing, or the index lacks such a change: nothing new may reference the
// run.
bool Daemon::Impl::changing(ckpt::RunId run) const {
  return pruning == run || recoder->recording() == run || !catalog_current();
}

}  // namespace ckptd
