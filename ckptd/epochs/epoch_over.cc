#include "ckptd/epochs/epoch_over.h"

#include "ckptd/history/make_record.h"

namespace ckptd {

std::optional<ckpt::fb::RecordT> record_of_epoch_over(const Groups::Member& left,
                                                      const Groups& groups, uint64_t time_ns) {
  if (left.left || groups.in_use(left.run)) return std::nullopt;
  if (groups.last_epoch(left.run) != left.epoch) return std::nullopt;
  ckpt::fb::EpochOpenedT over;
  over.run = left.run;
  over.epoch = left.epoch;
  over.lineage = left.lineage;
  over.time_ns = time_ns;
  over.over = true;
  return make_record(std::move(over));
}

}  // namespace ckptd
