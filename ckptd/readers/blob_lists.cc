#include "ckptd/readers/blob_lists.h"

#include "ckptd/readers/wanted_view.h"
#include "ckptd/sessions/access.h"
#include "formats/selector.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::ErrorCode;
using ckpt::make_error;

Result<fb::BlobsListedT> BlobLists::find(const Session& session,
                                         const fb::ListBlobsT& message) const {
  const Catalog& catalog = needs_.history.catalog();
  CKPT_ASSIGN(const RunInfo run, catalog.run(message.run.empty() ? session.run_name : message.run));
  CKPT_TRY(check_may(session, run, {ckpt::Right::kRead}));
  fb::OpenRestoreT view;
  view.lineage = message.lineage;
  view.step = message.step;
  view.latest = message.latest;
  view.tag = message.tag;
  CKPT_ASSIGN(const ViewPoint point, wanted_view(catalog, run, view));
  const auto commit = catalog.commit(run.id, point.lineage, point.step);
  if (commit && commit->damaged) {
    return make_error(ErrorCode::kCorrupt, "{}: damaged, and blobs have no older version: {}",
                      ckpt::commit_name(run.name, point.lineage, point.step), commit->reason);
  }
  fb::BlobsListedT listed;
  listed.request = message.request;
  listed.lineage = point.lineage;
  listed.step = point.step;
  for (const CommitBlob& blob : catalog.blobs(run.id, point)) {
    auto out = std::make_unique<fb::BlobListedT>();
    out->id = blob.version.unit;
    out->name = blob.name;
    out->rank = blob.rank();
    out->global = blob.global;
    out->bytes = blob.version.bytes;
    out->crc32c = blob.version.crc32c;
    listed.blobs.push_back(std::move(out));
  }
  return listed;
}

// Refuses while snapshots of earlier epochs are being written, which a restore waits for; the
// client asks again.
void BlobLists::list(const Session& session, const fb::ListBlobsT& message) {
  const bool same_run = message.run.empty() || message.run == session.run_name;
  if (const auto earlier = same_run ? needs_.earlier_snapshots(session.id) : std::nullopt) {
    return needs_.replies.refuse(
        session.id, message.request,
        earlier->epoch_active
            ? make_error(ErrorCode::kUnavailable,
                         "run {}: snapshots of an earlier epoch are still being written",
                         session.run_name)
            : make_error(ErrorCode::kAborted, "epoch {} has ended", earlier->epoch));
  }
  auto listed = needs_.history.read([&] { return find(session, message); });
  if (!listed.ok()) return needs_.replies.refuse(session.id, message.request, listed.error());
  needs_.replies.send(session.id, std::move(listed).value());
}

}  // namespace ckptd
