#include "ckptd/sessions/texts.h"

#include "ckptd/limits.h"
#include "formats/base/printable.h"
#include "formats/unit.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Status;
using ckpt::base::printable;

namespace {

// Checks the names in a request for a restore or a hold.
template <typename MessageT>
Status check_view(const MessageT& message) {
  if (!message.run.empty()) CKPT_TRY(ckpt::validate_name("run", message.run));
  if (!message.tag.empty()) CKPT_TRY(ckpt::validate_name("tag", message.tag));
  return {};
}

Status check_query(const fb::QueryT& query) {
  if (query.verb.size() > limits::kQueryVerbBytesMax) {
    return make_error(ErrorCode::kInvalidArgument, "{}: this daemon has no such question",
                      printable(query.verb, limits::kQueryVerbBytesMax));
  }
  if (query.args.size() > limits::kQueryArgsBytesMax) {
    return make_error(ErrorCode::kInvalidArgument, "{}: arguments of {} bytes, the most is {}",
                      printable(query.verb), query.args.size(), limits::kQueryArgsBytesMax);
  }
  return {};
}

std::optional<TextFault> fault(uint64_t request, const Status& status) {
  if (status.ok()) return std::nullopt;
  return TextFault{.request = request, .error = status.error()};
}

}  // namespace

std::optional<TextFault> check_texts(fb::MessageT& message) {
  if (fb::HelloT* hello = message.body.AsHello()) {
    hello->client = printable(hello->client, limits::kClientNameBytesMax);
  } else if (fb::AbortSnapshotT* abort = message.body.AsAbortSnapshot()) {
    abort->reason = printable(abort->reason, limits::kReasonBytesMax);
  } else if (fb::LocatedReadT* read = message.body.AsLocatedRead()) {
    read->reason = printable(read->reason, limits::kReasonBytesMax);
  } else if (const fb::OpenRestoreT* restore = message.body.AsOpenRestore()) {
    return fault(restore->request, check_view(*restore));
  } else if (const fb::HoldCommitT* hold = message.body.AsHoldCommit()) {
    return fault(hold->request, check_view(*hold));
  } else if (const fb::ListBlobsT* blobs = message.body.AsListBlobs()) {
    return fault(blobs->request, check_view(*blobs));
  } else if (const fb::QueryT* query = message.body.AsQuery()) {
    return fault(query->request, check_query(*query));
  }
  return std::nullopt;
}

}  // namespace ckptd
