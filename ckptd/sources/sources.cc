#include "ckptd/sources/sources.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "formats/base/assert.h"

namespace ckptd {

void Sources::add(std::unique_ptr<Source> source) {
  const SourceTraits& traits = source->traits();
  CKPT_ASSERT_MSG(by_id_[traits.id] == nullptr, "a source was added twice");
  const bool power_of_2 = (traits.block_bytes & (traits.block_bytes - 1)) == 0;
  CKPT_ASSERT(power_of_2 && traits.block_bytes > 0 && traits.block_bytes <= ckpt::kBlockBytes);
  CKPT_ASSERT(traits.read_bytes_max > 0 && traits.read_bytes_max % traits.block_bytes == 0);
  by_id_[traits.id] = source.get();
  rank_[traits.id] = list_.size();
  list_.push_back(std::move(source));
}

Source& Sources::at(SourceId id) const {
  Source* source = by_id_[id];
  CKPT_ASSERT_MSG(source != nullptr, "a place in a source that is not in the list");
  return *source;
}

std::optional<Place> Sources::from(size_t position, const FragmentName& fragment) const {
  for (; position < list_.size(); ++position) {
    const Source& source = *list_[position];
    if (const auto address = source.can_serve(fragment)) return Place{source.id(), *address};
  }
  return std::nullopt;
}

PlaceOracle Sources::places(uid_t uid) const {
  PlaceOracle oracle;
  oracle.first = [this, uid](const ckpt::SnapshotKey& snapshot, ckpt::UnitId unit,
                             const FragmentPlace& stored) {
    return first({uid, snapshot, unit, stored});
  };
  oracle.delta_base = [this](SourceId id, const FragmentPlace& stored) {
    return at(id).delta_base(stored);
  };
  oracle.rank = rank_;
  return oracle;
}

void Sources::restored(const SourceBytes& bytes, std::chrono::nanoseconds took) {
  const uint64_t all = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
  if (took.count() <= 0 || all < kMeasuredBytesMin) return;
  for (const auto& source : list_) {
    if (bytes[source->id()] != all) continue;
    source->measured(static_cast<double>(all) / std::chrono::duration<double>(took).count());
  }
}

}  // namespace ckptd
