// Blobs of a snapshot: declared at its begin, filled like fragments.
#include <algorithm>

#include "client/src/blobs.h"
#include "client/src/snapshot.h"
#include "formats/base/printable.h"

namespace ckpt::lib {

// Adds this rank's blobs to its shares and to the message. `lengths`: of shares that are written.
Status Snapshot::prepare_blobs(std::vector<uint64_t>& lengths) {
  const std::vector<BlobSpec>& blobs = options_.blobs;
  if (blobs.empty()) return ok_status();
  CKPT_TRY(check_daemon_takes_all());
  if (const Status checked = check_blobs(blobs); !checked.ok()) {
    return make_error(checked.error().code, "{}: {}", name(), checked.error().message);
  }
  first_blob_ = blob_id(session_->group().epoch().rank, 0);
  for (size_t i = 0; i < blobs.size(); ++i) {
    auto body = std::make_unique<fb::BlobDeclaredT>();
    body->name = blobs[i].name;
    body->bytes = blobs[i].bytes;
    body->global = blobs[i].global;
    begin_.blobs.push_back(std::move(body));
    if (blobs[i].bytes == 0) continue;
    const UnitId id = first_blob_ + static_cast<UnitId>(i);
    shares_.push_back({{id, 0, blobs[i].bytes}, 0, false});
    lengths.push_back(blobs[i].bytes);
  }
  return ok_status();
}

std::string Snapshot::label(UnitId unit) const {
  const auto& units = session_->units();
  if (unit < units.size()) return "unit " + units[unit].name;
  if (is_blob(unit) && unit - first_blob_ < options_.blobs.size()) {
    return "blob " + options_.blobs[unit - first_blob_].name;
  }
  return fmt::format("unit number {}", unit);
}

Status Snapshot::write_blob(const std::string& blob_name, bool global, ByteView data) {
  const auto blob = std::ranges::find_if(options_.blobs, [&](const BlobSpec& declared) {
    return declared.name == blob_name && declared.global == global;
  });
  if (blob == options_.blobs.end()) {
    return make_error(ErrorCode::kInvalidArgument, "{}: no {}blob named {} was declared", name(),
                      global ? "global " : "", base::printable(blob_name));
  }
  const UnitId id = first_blob_ + static_cast<UnitId>(blob - options_.blobs.begin());
  const auto share = std::ranges::lower_bound(
      shares_, id, {}, [](const Share& declared) { return declared.range.unit; });
  const bool empty =
      share == shares_.end() || share->range.unit != id;  // an empty blob has no share
  const uint64_t written = empty ? 0 : share->written;
  if (data.size() > blob->bytes - written) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: blob {}: {} bytes after its first {}, but {} were declared", name(),
                      blob_name, data.size(), written, blob->bytes);
  }
  return write(id, written, data);
}

}  // namespace ckpt::lib
