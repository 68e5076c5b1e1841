// SaveLedger: the last save of every expert, and the tokens it contained.
//
// Snapshots take seconds to become durable and the next choice does not wait for them: an expert
// counts as saved when its snapshot is taken. If the snapshot fails later, fail() reverts the
// entries, so that its experts are due again.
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
    int64_t tokens = 0;     // tokens whose updates the version contains
    uint64_t step = 0;      // of the snapshot; 0: unknown, or the start of the run
    bool operator==(const Saved&) const = default;
  };

  SaveLedger() = default;
  // Starts from the saves known at a resume, one per expert.
  explicit SaveLedger(std::vector<Saved> saved) : saved_(std::move(saved)) {}

  size_t size() const { return saved_.size(); }
  const Saved& operator[](size_t expert) const { return saved_[expert]; }
  bool all_saved() const;

  // Snapshot `snapshot`, later than all before it, takes these experts (positions, each once);
  // held[i] is the token count in expert i's state, at `step`.
  void take(uint64_t snapshot, std::span<const uint32_t> experts, std::span<const int64_t> held,
            uint64_t step = 0);

  // The snapshot has failed. Saves of later snapshots stay. A snapshot older than the last
  // kUndoMax is too old to matter. False: take() was not called for the snapshot, or it is too
  // old.
  bool fail(uint64_t snapshot);
  // Same, if the previous entries are unknown: the experts that it saved count
  // as never saved.
  void forget(uint64_t snapshot);

  // The expert's state is this version again. Later snapshots of it hold
  // a state that is lost. Precondition: they are settled.
  void restored(size_t expert, const Saved& version) { saved_.at(expert) = version; }

  // More than the snapshots in flight at any time.
  static constexpr size_t kUndoMax = 16;

 private:
  struct Taken {
    uint64_t snapshot = 0;
    std::vector<uint32_t> experts;
    std::vector<Saved> before;  // by expert
  };
  std::vector<Saved> saved_;
  std::deque<Taken> taken_;  // the newest is at the back
};

}  // namespace moetrain
