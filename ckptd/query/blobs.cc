#include "ckptd/query/blobs.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "ckptd/catalog/damaged_commits.h"

namespace ckptd {
namespace {

// Null: the bytes of the blob are not known to be damaged.
const ScrubDamage* blob_damage(const QueryContext& context, const View& view,
                               const CommitBlob& blob) {
  const auto found = std::ranges::find_if(context.damages, [&](const ScrubDamage& damage) {
    return is_of_run(damage, view.at.run) && damage.unit == blob.label() &&
           ViewPoint{damage.lineage, damage.step} == view.at.point;
  });
  return found == context.damages.end() ? nullptr : &*found;
}

Json name_json(const CommitBlob& blob) {
  return {{"blob", blob.name}, {"rank", blob.rank()}, {"global", blob.global}};
}

using Key = std::tuple<std::string, bool, ckpt::Rank>;

// A global blob is the same blob whichever rank wrote it.
std::map<Key, CommitBlob> by_key(const QueryContext& context, const View& view) {
  std::map<Key, CommitBlob> blobs;
  for (CommitBlob& blob : context.catalog.blobs(view.at.run.id, view.at.point)) {
    const Key key{blob.name, blob.global, blob.global ? 0 : blob.rank()};
    blobs.emplace(key, std::move(blob));
  }
  return blobs;
}

Json change_json(const CommitBlob& blob, std::string_view change) {
  Json row = name_json(blob);
  row["change"] = change;
  row["bytes"] = blob.version.bytes;
  return row;
}

}  // namespace

Json blobs_json(const QueryContext& context, const View& view) {
  Json list = Json::array();
  for (const CommitBlob& blob : context.catalog.blobs(view.at.run.id, view.at.point)) {
    Json row = name_json(blob);
    row["bytes"] = blob.version.bytes;
    row["crc32c"] = hex32(blob.version.crc32c);
    if (const ScrubDamage* damage = blob_damage(context, view, blob)) {
      row["damage"] = damage->reason;
      row["damage_found"] = iso_time(damage->found_ns);
    }
    list.push_back(std::move(row));
  }
  return list;
}

Json blob_changes_json(const QueryContext& context, const View& from, const View& to) {
  std::map<Key, CommitBlob> before = by_key(context, from);
  Json list = Json::array();
  for (const auto& [key, blob] : by_key(context, to)) {
    const auto found = before.find(key);
    if (found == before.end()) {
      list.push_back(change_json(blob, "added"));
      continue;
    }
    const UnitVersion& old = found->second.version;
    if (old.bytes != blob.version.bytes || old.crc32c != blob.version.crc32c) {
      list.push_back(change_json(blob, "changed"));
    }
    before.erase(found);
  }
  for (const auto& [key, blob] : before) list.push_back(change_json(blob, "removed"));
  return list;
}

}  // namespace ckptd
