// Checks, beyond flatbuffers::Verifier, of a FlatBuffer from outside before it is unpacked.
//
// The verifier proves that every offset points inside the buffer. It does not prove that two
// offsets point to different things: a buffer of some kilobytes can name one string a million
// times, and unpacking copies it each time. Our encoder never shares, so this check charges every
// string, vector and table once per mention, and the sum may not exceed the buffer. The verifier
// of FlatBuffers 2.0 also ignores the alignment of vector elements, which are read in place; this
// check covers it.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <cstddef>
#include <cstdint>

#include "formats/base/bytes.h"

namespace ckpt::wire {

// Tables of one message or record. The largest frame holds fewer.
inline constexpr uint32_t kTablesMax = 1u << 20;
// Limits for the verifier: our schemas nest at most five deep.
flatbuffers::Verifier::Options verifier_options();

// True if unpacking the verified buffer (its root is of type `type`, it starts at a multiple of 8)
// takes no more bytes than the buffer has and reads every number at its alignment. Linear in the
// buffer: stops at the first byte too many.
bool unpacks_safely(ByteView buffer, const flatbuffers::TypeTable& type);

}  // namespace ckpt::wire
