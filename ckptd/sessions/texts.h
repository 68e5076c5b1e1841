// Texts from clients. They end up in logs, answers to others and the journal: each is checked, or
// cut to its limit (limits.h), once, before anything else uses the message.
#pragma once

#include <optional>

#include "formats/base/result.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

struct TextFault {
  uint64_t request = 0;
  ckpt::Error error;
};

// Refuses names, queries and their arguments beyond their limits. Texts for people only (a
// client's name, the reason of an abort) are made printable and cut: they never cause a
// refusal.
//
// Checked elsewhere, because the answer depends on their meaning: the run of a greeting (hello,
// after the protocol's version), units and metadata (RunRegistry), metrics (check_begin: a
// refusal concerns all members), keys (Rendezvous).
std::optional<TextFault> check_texts(ckpt::fb::MessageT& message);

}  // namespace ckptd
