// RunCodecs: which units of a run's snapshots are encoded, snapshot by snapshot, and what is
// remembered for that: figures of each kind of units, and what was decided last. Pure: figures and
// conditions come in, plans go out. Nothing of it outlives the daemon; one snapshot measures anew.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ckptd/codec/codec_choice.h"
#include "ckptd/codec/encode_choice.h"
#include "ckptd/codec/slab_encoder.h"
#include "ckptd/codec/unit_kinds.h"

namespace ckptd {

class RunCodecs {
 public:
  // `choices`: by unit, or one for all of them.
  RunCodecs(UnitSpecList units, std::vector<CodecChoice> choices);

  struct Snapshot {
    EncodePlan plan;             // null: nothing is encoded
    std::set<uint32_t> samples;  // kinds that are to be measured
    std::set<uint32_t> changed;  // kinds that are encoded now and were not, or the reverse
  };
  // A snapshot of these units begins.
  Snapshot begin(const std::vector<ckpt::UnitId>& units, const EncodeConditions& conditions);

  // A sample of a kind was encoded. Counts half, if there are figures already.
  void measured(uint32_t kind, const CodecFigures& figures);

  // Of a kind that has units for which the choice is kAuto.
  struct Kind {
    std::string name;
    bool encoded = false;  // as of the last snapshot that has some of it
    std::optional<CodecFigures> figures;
  };
  const Kind& kind(uint32_t kind) const { return state_.at(kind).told; }
  std::vector<Kind> automatic() const;
  const UnitKinds& kinds() const { return kinds_; }
  const UnitSpecList& units() const { return units_; }

 private:
  struct State {
    Kind told;
    bool automatic = false;
    uint64_t sampled = 0;  // number of the snapshot
  };
  CodecChoice choice(ckpt::UnitId unit) const {
    return choices_.size() == 1 ? choices_.front() : choices_.at(unit);
  }
  std::vector<EncodeShare> shares_of(const std::vector<ckpt::UnitId>& units) const;
  EncodePlan make_plan() const;

  const UnitSpecList units_;
  const UnitKinds kinds_;
  const std::vector<CodecChoice> choices_;
  std::vector<State> state_;  // by kind
  uint64_t snapshots_ = 0;
  EncodePlan plan_;  // of the last decision
};

}  // namespace ckptd
