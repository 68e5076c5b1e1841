// Crash replay: a daemon's whole life on a recorded disk, and the checks of another daemon on every
// disk that a power loss during that life can have left.
//
// Independent of MemoryDisk::crash(), the source of the simulation's power cuts: the changes that
// may be lost are computed from the recorded order of writes, syncs and names alone.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/ckptd/daemon/job.h"
#include "tests/simulation/recording_disk.h"

namespace ckptd::testing {

class CrashReplay {
 public:
  // kDeltas: little of a unit changes at each step, and deltas are written.
  enum class Kind : uint8_t { kWhole, kDeltas };
  // Records a life: makes a store, overlaps snapshots, closes and opens, prunes and reclaims.
  explicit CrashReplay(uint64_t seed, Kind kind = Kind::kWhole);

  // Describes the first disk with an error; empty if there is none. Cuts the power at every moment,
  // and keeps of the changes that were uncertain then: none, all, each alone, all but each, and
  // some random choices with torn writes.
  std::string violation();
  size_t disks() const { return disks_; }  // number of disks that violation() has opened
  size_t moments() const { return disk_.moments(); }

 private:
  static constexpr size_t kNever = SIZE_MAX;
  std::byte byte_of(ckpt::UnitId unit, ckpt::Step step, uint64_t offset) const;
  void join(fb::ResumeMode resume);
  void record();
  void save(const std::map<ckpt::Step, std::vector<ckpt::UnitId>>& snapshots);
  void expect_kind();
  void prune();

  std::vector<RecordingDisk::Choice> choices(size_t cut);
  std::string check(size_t cut, const RecordingDisk::Choice& choice) const;
  std::string check_listed(World& world, size_t cut, std::set<ckpt::Step>* listed) const;
  std::string check_restores(World& world, size_t cut, const std::set<ckpt::Step>& listed) const;
  std::string check_view(FakeTrainer& reader, ckpt::Step step,
                         const std::set<ckpt::Step>& commits) const;
  bool announced(ckpt::Step step, size_t cut) const;

  const uint64_t seed_;
  const Kind kind_;
  std::mt19937_64 random_;
  World world_;
  RecordingDisk disk_;
  Job job_;
  std::map<ckpt::Step, std::vector<ckpt::UnitId>> units_;  // of each snapshot
  std::map<ckpt::Step, ckpt::LineageId> lineages_;
  std::map<ckpt::Step, size_t> announced_at_;  // moment of each announcement
  std::set<ckpt::Step> removed_;               // by the prune
  size_t prune_asked_ = kNever;
  size_t prune_answered_ = kNever;
  std::set<std::vector<bool>> seen_;
  size_t disks_ = 0;
};

}  // namespace ckptd::testing
