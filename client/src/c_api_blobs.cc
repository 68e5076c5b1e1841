#include <ckpt/ckpt_blobs.h>

#include "client/src/blobs.h"
#include "client/src/c_api.h"
#include "formats/blob.h"

namespace ckpt::lib {
namespace {

static_assert(CKPT_BLOB_BYTES_MAX == kBlobBytesPerRankMax && CKPT_BLOBS_MAX == kBlobsPerCommitMax,
              "what ckpt_blobs.h promises, ckptd takes");

constexpr uint32_t kListTimeoutMs = 10'000;
constexpr uint32_t kReadTimeoutMs = 60'000;

// The members that name a commit, of either options struct.
template <typename Options>
Result<BlobView> blob_view(const Session& session, const Options& raw) {
  BlobView view;
  view.run = raw.run != nullptr ? raw.run : session.options().run;
  CKPT_TRY(validate_name("run", view.run));
  view.lineage = raw.lineage;
  view.step = raw.step;
  view.latest = raw.latest != 0;
  view.tag = raw.tag != nullptr ? raw.tag : "";
  return view;
}

Status read_one(Session& session, const ckpt_blob_read_options& raw, uint64_t* bytes) {
  if (raw.name == nullptr) return missing("name");
  CKPT_ASSIGN(const BlobView view, blob_view(session, raw));
  const uint32_t timeout_ms = or_default(raw.timeout_ms, kReadTimeoutMs);
  CKPT_ASSIGN(const BlobList list, list_blobs(session, view, Deadline::after_ms(timeout_ms)));
  CKPT_ASSIGN(const BlobEntry blob,
              find_blob(list, view.run, raw.name,
                        raw.is_global != 0 ? std::nullopt : std::optional<Rank>(raw.rank)));
  *bytes = blob.bytes;
  if (blob.bytes > raw.capacity) {
    return make_error(ErrorCode::kResourceExhausted,
                      "run {} step {}: blob {} has {} bytes, there is room for {}", view.run,
                      list.step, blob.name, blob.bytes, raw.capacity);
  }
  if (raw.data == nullptr && blob.bytes > 0) return missing("data");
  return read_blob(session, view.run, list, blob, {static_cast<std::byte*>(raw.data), blob.bytes},
                   timeout_ms);
}

}  // namespace
}  // namespace ckpt::lib

using namespace ckpt;       // NOLINT(google-build-using-namespace): this file is the ABI's other
using namespace ckpt::lib;  // NOLINT(google-build-using-namespace): side, nothing includes it

ckpt_status ckpt_blob_write(ckpt_snapshot* snapshot, const ckpt_blob_write_options* options) {
  Session* session = snapshot->snapshot->session();
  if (session == nullptr) return CKPT_E_FAILED_PRECONDITION;
  return run_call(*session, [&]() -> Status {
    const ckpt_blob_write_options raw = copy_options(options);
    if (raw.name == nullptr || (raw.data == nullptr && raw.length > 0)) {
      return missing("name or data");
    }
    return snapshot->snapshot->write_blob(raw.name, raw.is_global != 0,
                                          {static_cast<const std::byte*>(raw.data), raw.length});
  });
}

ckpt_status ckpt_blob_list_read(ckpt_session* session, const ckpt_blob_list_options* options,
                                ckpt_blob_list* list) {
  return run_call(*session->session, [&]() -> Status {
    if (list == nullptr) return missing("list");
    const ckpt_blob_list_options raw = copy_options(options);
    CKPT_ASSIGN(const BlobView view, blob_view(*session->session, raw));
    const auto deadline = Deadline::after_ms(or_default(raw.timeout_ms, kListTimeoutMs));
    CKPT_ASSIGN(BlobList found, list_blobs(*session->session, view, deadline));
    session->blobs = std::move(found.entries);
    session->blob_entries.clear();
    for (const BlobEntry& blob : session->blobs) {
      session->blob_entries.push_back(
          {blob.name.c_str(), blob.rank, blob.global ? 1 : 0, blob.bytes, blob.crc32c, blob.id});
    }
    ckpt_blob_list out{};
    out.lineage = found.lineage;
    out.step = found.step;
    out.entries = session->blob_entries.data();
    out.count = session->blob_entries.size();
    copy_out(out, list);
    return ok_status();
  });
}

ckpt_status ckpt_blob_read(ckpt_session* session, const ckpt_blob_read_options* options,
                           uint64_t* bytes) {
  return run_call(*session->session, [&]() -> Status {
    if (bytes == nullptr) return missing("bytes");
    *bytes = 0;
    return read_one(*session->session, copy_options(options), bytes);
  });
}
