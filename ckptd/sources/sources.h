// Sources: the ordered list of all sources of the daemon, nearest first.
//
// The planner takes the first source that can serve a fragment. If that fails, a restore falls back
// through the rest of the list. Loop thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ckptd/sources/source.h"

namespace ckptd {

// Questions of the planner to the list, as functions, so that planning stays pure.
struct PlaceOracle {
  // Where the first source that can serve the fragment has it; nullopt: no source can serve it.
  std::function<std::optional<Place>(const ckpt::SnapshotKey&, ckpt::UnitId, const FragmentPlace&)>
      first;
  // Address of a delta's base in this source; nullopt: no delta, or the source is staged.
  std::function<std::optional<Address>(SourceId, const FragmentPlace&)> delta_base;
  BySource<size_t> rank;  // position in the list
};

class Sources {
 public:
  // Speeds of smaller restores measure only latency, and are left out.
  static constexpr uint64_t kMeasuredBytesMin = 1 << 20;

  // Appends to the list. Each id may be added once.
  void add(std::unique_ptr<Source> source);

  // The source must be in the list.
  Source& at(SourceId id) const;
  const std::vector<std::unique_ptr<Source>>& in_order() const { return list_; }

  // Where the first source that can serve the fragment has it.
  std::optional<Place> first(const FragmentName& fragment) const { return from(0, fragment); }
  // Likewise among the sources after this one.
  std::optional<Place> after(SourceId source, const FragmentName& fragment) const {
    return from(rank_[source] + 1, fragment);
  }
  // For a reader of this uid. The list must outlive the oracle.
  PlaceOracle places(uid_t uid) const;

  // A restore has ended, and got these bytes. One that read from a single source measures the speed
  // of this source: from the request to its last window, the trainer's part included.
  void restored(const SourceBytes& bytes, std::chrono::nanoseconds took);

 private:
  std::optional<Place> from(size_t position, const FragmentName& fragment) const;

  std::vector<std::unique_ptr<Source>> list_;
  BySource<Source*> by_id_;
  BySource<size_t> rank_;
};

}  // namespace ckptd
