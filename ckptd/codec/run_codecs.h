// RunCodecs: decides which units of a run's snapshots to encode, and keeps the data for that:
// figures of each kind of units, and the last decision. Pure: figures and conditions in, plans out.
// Not persistent; a restarted daemon measures anew within one snapshot.
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
  // `choices`: by unit, or one for all units.
  RunCodecs(UnitSpecList units, std::vector<CodecChoice> choices);

  struct Snapshot {
    EncodePlan plan;             // null: nothing is encoded
    std::set<uint32_t> samples;  // kinds to measure
    std::set<uint32_t> changed;  // kinds whose encoding was switched on or off
  };
  // Starts a snapshot of these units.
  Snapshot begin(const std::vector<ckpt::UnitId>& units, const EncodeConditions& conditions);

  // A sample of a kind was encoded. Averaged with existing figures, half each.
  void measured(uint32_t kind, const CodecFigures& figures);

  // A kind that has units with the choice kAuto.
  struct Kind {
    std::string name;
    bool encoded = false;  // as of the last snapshot with units of this kind
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
    uint64_t sampled = 0;  // number of the last sampled snapshot
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
