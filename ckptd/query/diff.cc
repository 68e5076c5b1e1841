// The units that differ between two views.
#include <map>
#include <span>

#include "ckptd/query/blobs.h"
#include "ckptd/query/rows.h"
#include "ckptd/query/view.h"

namespace ckptd {
namespace {

// A unit of either view. Units are matched by name, because two runs may have different units.
struct Change {
  std::optional<Seen> from;
  std::optional<Seen> to;
  uint64_t from_bytes = 0;
  uint64_t to_bytes = 0;

  bool differs() const {
    if (!from || !to) return from.has_value() != to.has_value();
    return from_bytes != to_bytes || from->crc32c != to->crc32c;
  }
  uint64_t bytes() const { return to ? to_bytes : from_bytes; }
};

std::map<std::string_view, Change> changes_between(const View& from, const View& to) {
  std::map<std::string_view, Change> changes;
  for (ckpt::UnitId unit = 0; unit < from.units.size(); ++unit) {
    const ckpt::UnitSpec& spec = (*from.specs)[unit];
    Change& change = changes[spec.name];
    change.from = from.units[unit];
    change.from_bytes = spec.bytes;
  }
  for (ckpt::UnitId unit = 0; unit < to.units.size(); ++unit) {
    const ckpt::UnitSpec& spec = (*to.specs)[unit];
    Change& change = changes[spec.name];
    change.to = to.units[unit];
    change.to_bytes = spec.bytes;
  }
  return changes;
}

bool add_change(Rows& rows, std::string_view name, const Change& change) {
  rows.begin();
  rows.add("unit", name);
  rows.add("change", !change.from ? "added" : !change.to ? "removed" : "changed");
  rows.add("from_step", step_of(change.from));
  rows.add("to_step", step_of(change.to));
  rows.add("bytes", change.bytes());
  return rows.end();
}

}  // namespace

// A page's position: the number of a change in the order of names.
Result<Page> diff_document(const QueryContext& context, const QueryArgs& args) {
  CKPT_ASSIGN(const Position at, args.position(2 * kViewNumbers + 1));
  CKPT_ASSIGN(const size_t room, args.page_bytes(context.page_bytes_max));
  const std::span<const uint64_t> position(at);
  const auto part = [&](size_t first) {
    return position.empty() ? position : position.subspan(first, kViewNumbers);
  };
  CKPT_ASSIGN(const View from, read_view(context, args, "from", part(0)));
  CKPT_ASSIGN(const View to, read_view(context, args, "to", part(kViewNumbers)));
  std::map<std::string_view, Change> changes = changes_between(from, to);
  std::erase_if(changes, [](const auto& change) { return !change.second.differs(); });
  uint64_t bytes = 0;
  for (const auto& [name, change] : changes) bytes += change.bytes();
  Json document = {{"from", point_json(from)}, {"to", point_json(to)}, {"bytes", bytes}};
  if (at.empty()) document["blobs"] = blob_changes_json(context, from, to);
  Rows rows(document, "units", room, changes.size());
  Page page{.json = {}, .lists = {"units"}};
  uint64_t number = 0;
  for (const auto& [name, change] : changes) {
    const uint64_t index = number++;
    if (!at.empty() && index < at.back()) continue;
    if (add_change(rows, name, change)) continue;
    page.next = view_position(from);
    const Position other = view_position(to);
    page.next.insert(page.next.end(), other.begin(), other.end());
    page.next.push_back(index);
    break;
  }
  page.json = std::move(rows).text();
  return page;
}

}  // namespace ckptd
