// Definitions of ckpt.h's handles, and the conversion from Result to ckpt_status.
#pragma once

#include <ckpt/ckpt_blobs.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "client/src/blobs.h"
#include "client/src/out_of_memory.h"
#include "client/src/restore.h"
#include "client/src/session.h"
#include "client/src/snapshot.h"

struct ckpt_session {
  std::unique_ptr<ckpt::lib::Session> session;
  std::vector<ckpt::lib::RestoredRange> restored;  // keeps the notes of the last restore
  // Memory of the last list of blobs.
  std::vector<ckpt::lib::BlobEntry> blobs;
  std::vector<ckpt_blob_entry> blob_entries;
};
struct ckpt_snapshot {
  std::shared_ptr<ckpt::lib::Snapshot> snapshot;
};

namespace ckpt::lib {

// The caller's options struct in this library's layout: fields that an older caller lacks are zero.
template <typename Options>
Options copy_options(const Options* from) {
  Options options{};
  if (from != nullptr) std::memcpy(&options, from, std::min(from->struct_size, sizeof options));
  return options;
}
// Without its size a struct would read as one that asks for nothing. `first`: bytes of the first
// version of the struct.
template <typename Options>
Status check_size(const Options* from, size_t first) {
  if (from->struct_size >= first) return ok_status();
  return make_error(ErrorCode::kInvalidArgument,
                    "struct_size is {}: start with CKPT_INIT, which sets it", from->struct_size);
}
// The reverse, for results: fields that the caller does not know are left out.
template <typename Info>
void copy_out(Info info, Info* to) {
  const size_t known = std::min(to->struct_size, sizeof info);
  info.struct_size = to->struct_size;
  std::memcpy(to, &info, known);
}

// Runs `body` (-> Status) and keeps its error message. No exception crosses the ABI; the only
// possible one is std::bad_alloc.
template <typename Body>
ckpt_status run_call(Session& session, Body&& body) {
  session.error_text.clear();
  session.error_detail = ErrorDetail::kNone;
  try {
    const Status status = body();
    if (status.ok()) return CKPT_OK;
    session.error_text = status.error().message;
    session.error_detail = status.error().detail;
    return static_cast<ckpt_status>(status.error().code);
  } catch (const std::bad_alloc&) {
    session.error_text = kOutOfMemory;
    return CKPT_E_RESOURCE_EXHAUSTED;
  }
}

inline uint32_t or_default(uint32_t timeout_ms, uint32_t default_ms) {
  return timeout_ms == 0 ? default_ms : timeout_ms;
}
inline Error missing(const char* argument) {
  return make_error(ErrorCode::kInvalidArgument, "{} is NULL", argument);
}

}  // namespace ckpt::lib
