#include "trainer/checkpoint/restore.h"

#include "trainer/checkpoint/client_status.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
namespace client = ckpt::client;

namespace {

using Answers = std::vector<client::Restored>;

struct Want {
  ckpt_range range;
  bool on_host = true;
};

// By the link, where there is one: all that is not in host memory.
Result<Answers> read_ranges(client::Session& session, const client::RestoreOptions& options,
                            const std::vector<Want>& wants, DeviceLink* link) {
  std::vector<ckpt_range> host;
  std::vector<LinkPiece> device;
  for (const auto& [range, on_host] : wants) {
    if (link == nullptr || on_host) {
      host.push_back(range);
    } else {
      const std::span<std::byte> bytes(static_cast<std::byte*>(range.data), range.length);
      device.push_back({range.unit, range.offset, bytes});
    }
  }
  CKPT_ASSIGN(Answers of_host, to_result(session.restore(options, host)));
  if (link == nullptr) return of_host;
  CKPT_ASSIGN(const Answers of_device, link->restore(options, device));
  Answers answers;
  answers.reserve(wants.size());
  auto next_host = of_host.begin();
  auto next_device = of_device.begin();
  for (const Want& want : wants) answers.push_back(want.on_host ? *next_host++ : *next_device++);
  return answers;
}

// One range per piece of memory, whole units in order.
std::vector<Want> wants_of(const std::vector<StateUnit>& units,
                           const std::vector<uint32_t>& unit_ids, const StateMemory& memory) {
  std::vector<Want> wants;
  for (const uint32_t id : unit_ids) {
    for (const MemoryPiece& piece : memory.pieces(id, 0, units[id].bytes)) {
      wants.push_back({{id, piece.offset, piece.bytes.size(), piece.bytes.data()}, piece.on_host});
    }
  }
  return wants;
}

void note_stale(const StateUnit& unit, uint32_t id, const client::Restored& restored,
                RestoreSummary& summary) {
  if (!summary.stale_units.empty() && summary.stale_units.back() == id) return;
  summary.stale_units.push_back(id);
  if (restored.note.empty()) return;  // an expert that newer snapshots did not take
  summary.notes.push_back(
      fmt::format("unit {} is from step {}: {}", unit.name, restored.version.step, restored.note));
}

}  // namespace

Result<RestoreSummary> restore_units(client::Session& session, const std::string& run,
                                     const client::ViewPoint& view,
                                     const std::vector<StateUnit>& units,
                                     const std::vector<uint32_t>& unit_ids,
                                     const StateMemory& memory, DeviceLink* link, ViewLevel level) {
  const std::vector<Want> wants = wants_of(units, unit_ids, memory);
  CKPT_ASSIGN(const Answers restored, read_ranges(session,
                                                  {.run = run,
                                                   .lineage = view.lineage,
                                                   .step = view.step,
                                                   .memory = level == ViewLevel::kMemory},
                                                  wants, link));
  RestoreSummary summary;
  for (size_t i = 0; i < wants.size(); ++i) {
    const uint32_t id = wants[i].range.unit;
    summary.bytes_memory += restored[i].bytes_memory;
    summary.bytes_disk += restored[i].bytes_disk;
    if (restored[i].level == CKPT_LEVEL_STAGED &&
        (summary.memory_units.empty() || summary.memory_units.back() != id)) {
      summary.memory_units.push_back(id);
    }
    if (restored[i].version.step == view.step) continue;
    if (id == kTrainerUnit) {
      return make_error(ErrorCode::kCorrupt,
                        "run {} step {} unit trainer: only its version of step {} can be read{}{};"
                        " resume from step {} instead",
                        run, view.step, restored[i].version.step,
                        restored[i].note.empty() ? "" : ": ", restored[i].note,
                        restored[i].version.step);
    }
    note_stale(units[id], id, restored[i], summary);
  }
  return summary;
}

}  // namespace moetrain
