// Growth: units that a run gets with a snapshot, as a member sends them. Pure.
#pragma once

#include <memory>
#include <vector>

#include "ckptd/codec/slab_encoder.h"
#include "formats/base/result.h"
#include "formats/unit.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

using ckpt::Result;
using ckpt::Status;

// The units that a message lists, ascending by id without a gap.
struct Growth {
  ckpt::UnitId first = 0;  // id of the first one
  std::vector<ckpt::UnitSpec> units;
  std::vector<ckpt::fb::UnitCodec> codecs;  // one for each
  std::vector<uint32_t> flags;              // likewise
};

// kInvalidArgument: a unit, its id, its codec or its flags cannot be.
Result<Growth> read_growth(const std::vector<std::unique_ptr<ckpt::fb::GrownUnitT>>& grown);

// The run's units and the growth behind them; `known` itself if all of the growth is known. `base`:
// units of the run's first registration. kResourceExhausted: the run would have grown too much.
// kFailedPrecondition, kUnitsDiffer: a unit of the growth has another number, dtype, shape or size
// than the unit of this name in the run; the message has both values.
Result<UnitSpecList> grown_units(const UnitSpecList& known, size_t base, const Growth& growth);

// kUnavailable: from unit `known` on, the two lists have different units of one number. `other` is
// the list of an open snapshot of step `other_step`.
Status check_growths_agree(const std::vector<ckpt::UnitSpec>& units,
                           const std::vector<ckpt::UnitSpec>& other, size_t known,
                           ckpt::Step other_step);

}  // namespace ckptd
