// Messages to the client of a restore. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ckptd/restore/restore.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

// Note texts of one message, about ranges that are not served as in the view: the full text once
// per unit; the unit's other ranges refer to it. So the message always fits into a frame
// (limits.h).
class NoteTexts {
 public:
  std::string of(ckpt::UnitId unit, const std::string& note);

 private:
  std::set<ckpt::UnitId> noted_units_;
  size_t bytes_ = 0;
};

// The versions that the plan found for the wanted ranges.
std::vector<std::unique_ptr<ckpt::fb::RestoredUnitT>> restored_units(const RestoreRequest& request,
                                                                     const RestorePlan& plan);
// A filled slab.
ckpt::fb::RestoreWindowT window_message(uint64_t restore, const Window& window);
// Fragments that the client reads itself; the window must have them.
ckpt::fb::LocatedT located_message(uint64_t restore, const Window& window);

}  // namespace ckptd
