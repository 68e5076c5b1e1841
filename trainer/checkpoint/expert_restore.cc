#include "trainer/checkpoint/expert_restore.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "formats/base/bytes.h"
#include "trainer/checkpoint/client_status.h"
#include "trainer/checkpoint/restore.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
namespace client = ckpt::client;

namespace {

Status check_tensor(const std::vector<std::byte>& unit, const UnitTensor& tensor) {
  const std::byte* const begin = unit.data() + tensor.offset;
  for (uint64_t at = 0; at < tensor.bytes; at += sizeof(float)) {
    if (std::isfinite(ckpt::base::load<float>(begin + at))) continue;
    return make_error(ErrorCode::kCorrupt, "element {} of {} is not finite", at / sizeof(float),
                      tensor.name());
  }
  return {};
}

Status check_unit(const std::vector<std::byte>& bytes, const StateUnit& unit) {
  for (const UnitTensor& tensor : unit.tensors) CKPT_TRY(check_tensor(bytes, tensor));
  return {};
}

Status check_stamp(const ExpertStamp& stamp, uint64_t step) {
  const bool in_time = stamp.updates >= 0 && static_cast<uint64_t>(stamp.updates) <= step;
  if (stamp.snapshot >= 1 && stamp.tokens >= 0 && in_time) return {};
  return make_error(ErrorCode::kCorrupt,
                    "its stamp says snapshot {}, {} tokens, {} updates: no state of this model",
                    stamp.snapshot, stamp.tokens, stamp.updates);
}

// Reads the stamps of these versions, and checks each against the step of its version.
Status read_stamps(client::Session& session, const std::string& run, const client::ViewPoint& point,
                   const std::vector<StateUnit>& units, const std::vector<ExpertVersion>& versions,
                   ExpertStamps& stamps) {
  CKPT_TRY(restore_newest_stamps(session, run, point, units, versions, stamps));
  for (const ExpertVersion& version : versions) {
    const Status checked = check_stamp(stamps.of(units[version.unit]), version.step);
    if (checked.ok()) continue;
    return make_error(checked.error().code, "run {} step {} unit {}: {}", run, version.step,
                      units[version.unit].name, checked.error().message);
  }
  return {};
}

}  // namespace

Result<ExpertVersions> ExpertVersions::read(client::Session& session, const std::string& run,
                                            const client::ViewPoint& point,
                                            const std::vector<StateUnit>& units,
                                            const ExpertGrid& grid,
                                            std::span<const uint32_t> experts) {
  ExpertVersions read(grid);
  std::vector<size_t> place(grid.size(), SIZE_MAX);  // in versions_
  for (const uint32_t expert : experts) {
    CKPT_ASSERT(expert < grid.size() && place[expert] == SIZE_MAX);
    place[expert] = read.versions_.size();
    read.versions_.push_back({.expert = expert, .step = UINT64_MAX});
  }
  std::vector<ckpt_range> ranges;
  for (uint32_t id = 0; id < units.size(); ++id) {
    const StateUnit& unit = units[id];
    if (!unit.expert || place[grid.at(*unit.layer, *unit.expert)] == SIZE_MAX) continue;
    read.units_.push_back({.unit = id});
    std::vector<std::byte>& bytes = read.bytes_.emplace_back(unit.bytes);
    ranges.push_back({id, 0, unit.bytes, bytes.data()});
  }
  CKPT_ASSIGN(const std::vector<client::Restored> restored,
              to_result(session.restore({.run = run,
                                         .lineage = point.lineage,
                                         .step = point.step,
                                         .newest = true,
                                         .memory = true},
                                        ranges)));
  std::vector<ExpertVersion> saved;
  saved.reserve(read.units_.size());
  for (size_t i = 0; i < read.units_.size(); ++i) {
    const StateUnit& unit = units[read.units_[i].unit];
    const client::Restored& one = restored[i];
    Status checked = check_unit(read.bytes_[i], unit);
    if (one.version.step > point.step) {
      checked = make_error(ErrorCode::kCorrupt, "a version after step {} was given", point.step);
    }
    if (!checked.ok()) {
      return make_error(checked.error().code, "run {} step {} unit {}: {}", run, one.version.step,
                        unit.name, checked.error().message);
    }
    const size_t expert = grid.at(*unit.layer, *unit.expert);
    Version& version = read.versions_[place[expert]];
    version.step = std::min(version.step, one.version.step);
    version.in_memory |= one.level == CKPT_LEVEL_STAGED;
    read.bytes_memory_ += one.bytes_memory;
    read.bytes_disk_ += one.bytes_disk;
    if (!one.note.empty()) {
      read.notes_.push_back(older_version_text(unit.name, one.version.step, one.note));
    }
    read.units_[i].step = one.version.step;
    saved.push_back({read.units_[i].unit, one.version.lineage, one.version.step});
  }
  CKPT_TRY(read_stamps(session, run, point, units, saved, read.stamps_));
  return read;
}

Status ExpertVersions::put(const StateMemory& memory, Device& device) const {
  for (size_t i = 0; i < units_.size(); ++i) {
    for (const MemoryPiece& piece : memory.pieces(units_[i].unit, 0, bytes_[i].size())) {
      const auto from = std::span(bytes_[i]).subspan(piece.offset, piece.bytes.size());
      if (piece.on_host || device.is_host()) {
        std::memcpy(piece.bytes.data(), from.data(), from.size());
      } else {
        device.upload(piece.bytes.data(), from);
      }
    }
  }
  return device.synchronize();
}

}  // namespace moetrain
