// Registrations: the codecs and flags that trainers request for units, by run.
//
// They are not part of the run: trainers register again with the next daemon. Loop thread only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ckptd/alarms/unit_flags.h"
#include "ckptd/codec/codec_choice.h"
#include "ckptd/codec/slab_encoder.h"
#include "ckptd/snapshots/growth.h"
#include "formats/base/result.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

// kInvalidArgument unless a trainer's codecs cover all of its units, and are known.
ckpt::Status check_unit_codecs(const ckpt::fb::RegisterUnitsT& message);

// kInvalidArgument: the grown units of a registration contradict themselves.
ckpt::Status check_grown_requests(const ckpt::fb::RegisterUnitsT& message);

// kInvalidArgument for the codec Auto, which was removed: a run does not begin with it. A run that
// trains already may keep it.
ckpt::Status check_no_auto_codec(const ckpt::fb::RegisterUnitsT& message);

class Registrations {
 public:
  // Precondition: check_unit_codecs(), check_grown_requests() and UnitFlags::check() pass. The last
  // registration with codecs counts. A training whose older libckpt asks for Auto continues without
  // compression: an upgrade of ckptd must not stop it.
  void note(const std::string& run, const ckpt::fb::RegisterUnitsT& message);
  // Codecs and flags of grown units, in place of those that they had.
  void note_growth(const std::string& run, const Growth& growth);
  void forget(const std::string& run);

  // The units of a snapshot to encode. Null: none.
  EncodePlan encode_plan(const std::string& run, const UnitSpecList& units,
                         CodecChoice by_default) const;
  bool constant(const std::string& run, ckpt::UnitId unit) const {
    const Grown* grown = find_grown(run, unit);
    return grown != nullptr ? (grown->flags & UnitFlags::kConstant) != 0
                            : flags_.constant(run, unit);
  }

 private:
  struct Grown {
    ckpt::fb::UnitCodec codec = ckpt::fb::UnitCodec::Default;
    uint32_t flags = 0;
  };
  const Grown* find_grown(const std::string& run, ckpt::UnitId unit) const;

  std::map<std::string, std::vector<ckpt::fb::UnitCodec>> codecs_;  // if trainers set them
  UnitFlags flags_;
  std::map<std::string, std::map<ckpt::UnitId, Grown>> grown_;
};

}  // namespace ckptd
