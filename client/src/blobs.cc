#include "client/src/blobs.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "client/src/restore.h"
#include "formats/base/crc32c.h"
#include "formats/base/printable.h"
#include "formats/blob.h"
#include "formats/wire/protocol.h"

namespace ckpt::lib {
namespace {

std::string blobs_name(const BlobView& view) {
  if (view.latest || !view.tag.empty()) return fmt::format("run {}: blobs", view.run);
  return fmt::format("run {} step {}: blobs", view.run, view.step);
}

Result<BlobList> take_list(const fb::BlobsListedT& answer, const std::string& what) {
  BlobList list{.lineage = answer.lineage, .step = answer.step, .entries = {}};
  for (const auto& blob : answer.blobs) {
    if (blob == nullptr || !is_blob(blob->id) || blob->bytes > kBlobBytesPerRankMax) {
      return make_error(ErrorCode::kCorrupt, "{}: the daemon's list names something else", what);
    }
    list.entries.push_back(
        {blob->id, blob->name, blob->rank, blob->global, blob->bytes, blob->crc32c});
  }
  return list;
}

}  // namespace

Status check_blobs_known(const Session& session, const std::string& what) {
  if (session.protocol() >= wire::kProtocolOfBlobs) return ok_status();
  return make_error(ErrorCode::kVersionMismatch,
                    "{}: ckptd speaks protocol {}, and blobs need {}: upgrade ckptd", what,
                    session.protocol(), wire::kProtocolOfBlobs);
}

Result<BlobList> list_blobs(Session& session, const BlobView& view, const Deadline& deadline) {
  const std::string what = blobs_name(view);
  // An older or newer daemon without this request would close the connection.
  const CallOptions call{deadline, what, [&session, &what]() -> std::optional<Error> {
                           if (!session.ready()) return std::nullopt;
                           const Status known = check_blobs_known(session, what);
                           return known.ok() ? std::nullopt : std::optional(known.error());
                         }};
  CKPT_TRY(session.wait_ready(call));
  CKPT_TRY(check_blobs_known(session, what));
  fb::ListBlobsT body;
  body.run = view.run;
  body.lineage = view.lineage;
  body.step = view.step;
  body.latest = view.latest;
  body.tag = view.tag;
  const Result<fb::MessageT> reply = session.call(body, call);
  if (!reply.ok()) return reply.error();
  const fb::BlobsListedT* answer = reply->body.AsBlobsListed();
  if (answer == nullptr) {
    return make_error(ErrorCode::kCorrupt, "{}: the daemon answered something else", what);
  }
  return take_list(*answer, what);
}

Result<BlobEntry> find_blob(const BlobList& list, const std::string& run, const std::string& name,
                            std::optional<Rank> rank) {
  std::vector<std::string> others;
  for (const BlobEntry& blob : list.entries) {
    if (blob.name != name) continue;
    if (rank ? !blob.global && blob.rank == *rank : blob.global) return blob;
    others.push_back(blob.global ? "global" : fmt::format("of rank {}", blob.rank));
  }
  constexpr size_t kNamedMax = 8;
  const bool more = others.size() > kNamedMax;
  others.resize(std::min(others.size(), kNamedMax));
  return make_error(ErrorCode::kNotFound, "run {} step {}: no {} {}{}{}", run, list.step,
                    rank ? fmt::format("blob of rank {} named", *rank) : "global blob named",
                    base::printable(name),
                    others.empty() ? "" : fmt::format("; there is one {}", fmt::join(others, ", ")),
                    more ? ", ..." : "");
}

Status read_blob(Session& session, const std::string& run, const BlobList& list,
                 const BlobEntry& blob, MutableByteView data, uint32_t timeout_ms) {
  CKPT_ASSERT(data.size() == blob.bytes);
  if (data.empty()) return ok_status();
  RestoreOptions options;
  options.run = run;
  options.lineage = list.lineage;
  options.step = list.step;
  options.timeout_ms = timeout_ms;
  const RestoreRange range{{blob.id, 0, blob.bytes}, data.data()};
  CKPT_TRY(restore_read(session, options, {range}));
  // A commit of another attempt may have replaced the listed one.
  if (base::crc32c(data) == blob.crc32c) return ok_status();
  return make_error(ErrorCode::kUnavailable,
                    "run {} step {}: blob {}: it has changed since it was listed", run, list.step,
                    blob.name);
}

}  // namespace ckpt::lib
