// Texts that clients send. They end up in logs, answers to others, the journal: each is checked or
// cut to its bound (limits.h) once, before anything else looks at the message.
#pragma once

#include <optional>

#include "formats/base/result.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

struct TextFault {
  uint64_t request = 0;
  ckpt::Error error;
};

// Names, questions and their arguments are refused where they break their bounds. What only people
// read (a client's name, the reason of an abort) is made printable and cut: it never stands in the
// way of what the message is for.
//
// Elsewhere, since what they mean decides how they are answered: the run of a greeting (hello,
// after the protocol's version), units and metadata (register_units), metrics (check_begin:
// refusing them is a matter of all members), keys (Rendezvous).
std::optional<TextFault> check_texts(ckpt::fb::MessageT& message);

// JSON, within the bounds of size and depth, or empty.
ckpt::Status check_metadata(const std::string& metadata);

}  // namespace ckptd
