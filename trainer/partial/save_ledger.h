// SaveLedger: for every expert, which snapshot saved it last and what it held then.
//
// Snapshots take seconds to become durable and the next choice does not wait for them: an expert
// counts as saved when its snapshot is taken. If the snapshot turns out to have failed, fail() puts
// things back, so that its experts are due again.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace moetrain {

class SaveLedger {
 public:
  struct Saved {
    uint64_t snapshot = 0;  // its number, from 1; 0: never saved
    int64_t tokens = 0;     // whose updates the version holds
    uint64_t step = 0;      // that it was taken at; 0: not known, or the start of the run
    bool operator==(const Saved&) const = default;
  };

  SaveLedger() = default;
  // What is known when a run is resumed, one for each expert.
  explicit SaveLedger(std::vector<Saved> saved) : saved_(std::move(saved)) {}

  size_t size() const { return saved_.size(); }
  const Saved& operator[](size_t expert) const { return saved_[expert]; }
  bool all_saved() const;

  // Snapshot `snapshot`, later than all before it, takes these experts (positions, each once);
  // held[i] is what expert i's state holds now, at `step`.
  void take(uint64_t snapshot, std::span<const uint32_t> experts, std::span<const int64_t> held,
            uint64_t step = 0);

  // The snapshot is not to be had. What a later one has saved anyway stays saved. A snapshot that
  // is not one of the last kUndoMax is too old to matter. False: it is none of those that take()
  // has told of.
  bool fail(uint64_t snapshot);
  // The same where nobody knows any more what there was before: the experts that it has saved count
  // as never saved.
  void forget(uint64_t snapshot);

  // The expert's state is this version again, whatever was taken of it since: those snapshots hold
  // a state that is gone. They must be settled before.
  void came_back(size_t expert, const Saved& version) { saved_.at(expert) = version; }

  // More than the snapshots that are on their way at any time.
  static constexpr size_t kUndoMax = 16;

 private:
  struct Taken {
    uint64_t snapshot = 0;
    std::vector<uint32_t> experts;
    std::vector<Saved> before;  // of each of them
  };
  std::vector<Saved> saved_;
  std::deque<Taken> taken_;  // the newest is at the back
};

}  // namespace moetrain
