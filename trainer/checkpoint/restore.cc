#include "trainer/checkpoint/restore.h"

#include <algorithm>

#include "trainer/checkpoint/client_status.h"
#include "trainer/checkpoint/trainer_state.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
namespace client = ckpt::client;

namespace {

using Answers = std::vector<client::Restored>;

constexpr uint64_t kNewestStep = UINT64_MAX - 1;  // ckptd refuses later steps

struct Want {
  ckpt_range range;
  bool on_host = true;
};

// Reads into host memory directly; through the link, if there is one, into other memory.
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

// One range per memory area that this rank holds, units in order.
std::vector<Want> wants_of(const std::vector<uint32_t>& unit_ids, const StateMemory& memory) {
  std::vector<Want> wants;
  for (const uint32_t id : unit_ids) {
    for (const MemoryPiece& piece : memory.held(id)) {
      wants.push_back({{id, piece.offset, piece.bytes.size(), piece.bytes.data()}, piece.on_host});
    }
  }
  return wants;
}

void note_stale(const StateUnit& unit, uint32_t id, const client::Restored& restored,
                RestoreSummary& summary) {
  if (!summary.stale_units.empty() && summary.stale_units.back() == id) return;
  summary.stale_units.push_back(id);
  if (restored.note.empty()) return;  // an expert that newer snapshots left out
  summary.notes.push_back(older_version_text(unit.name, restored.version.step, restored.note));
}

std::string version_name(const std::string& run, const ExpertVersion& version) {
  return fmt::format("run {} lineage {} step {}", run, version.lineage, version.step);
}

// Versions of the experts among the restored units. All ranges of a unit must have one version.
Result<std::vector<ExpertVersion>> expert_versions(const std::string& run,
                                                   const std::vector<StateUnit>& units,
                                                   const std::vector<Want>& wants,
                                                   const Answers& restored) {
  std::vector<ExpertVersion> versions;
  for (size_t i = 0; i < wants.size(); ++i) {
    const uint32_t id = wants[i].range.unit;
    if (!units[id].expert) continue;
    const ExpertVersion version{id, restored[i].version.lineage, restored[i].version.step};
    if (versions.empty() || versions.back().unit != id) {
      versions.push_back(version);
    } else if (versions.back() != version) {
      return make_error(ErrorCode::kCorrupt, "run {} unit {}: restored from steps {} and {}", run,
                        units[id].name, versions.back().step, version.step);
    }
  }
  return versions;
}

// Stamps of the restored versions. The view's trainer unit, if restored, knows most of them. It
// lacks versions whose commit is not the expected one, because a snapshot in between failed or was
// in memory only.
Status stamps_of_view(client::Session& session, const std::string& run,
                      const std::vector<StateUnit>& units, std::vector<ExpertVersion> versions,
                      bool with_trainer_unit, const StateMemory& memory) {
  ExpertStamps& stamps = memory.stamps();
  if (with_trainer_unit && !versions.empty()) {
    const ExpertGrid& grid = stamps.grid();
    const auto view = decode_trainer_state(memory.trainer_unit(), grid.layers, grid.experts);
    if (!view.ok()) return make_error(view.error().code, "run {} {}", run, view.error().message);
    if (!view->stamps.empty()) versions = take_stamps(view->stamps, units, versions, stamps);
  }
  return restore_stamps(session, run, units, std::move(versions), stamps);
}

// A version without a stamp is corrupt, even if its commit's trainer unit is gone: it must not be
// mistaken for an expert that was never saved.
ckpt::Error no_stamps(const ckpt::Error& error, const std::string& commit,
                      const std::string& unit) {
  const bool gone = error.code == ErrorCode::kNotFound;
  return make_error(gone ? ErrorCode::kCorrupt : error.code,
                    "{} unit trainer, which tells of {}: {}", commit, unit, error.message);
}

RestoreSummary summarize(const std::vector<StateUnit>& units, const std::vector<Want>& wants,
                         const Answers& restored, uint64_t step) {
  RestoreSummary summary;
  for (size_t i = 0; i < wants.size(); ++i) {
    const uint32_t id = wants[i].range.unit;
    summary.bytes_memory += restored[i].bytes_memory;
    summary.bytes_disk += restored[i].bytes_disk;
    if (restored[i].level == CKPT_LEVEL_STAGED &&
        (summary.memory_units.empty() || summary.memory_units.back() != id)) {
      summary.memory_units.push_back(id);
    }
    if (summary.versions.empty() || summary.versions.back().unit != id) {
      summary.versions.push_back({id, restored[i].version.step});
    }
    if (restored[i].version.step == step) continue;
    if (!units[id].expert) summary.torn = true;
    note_stale(units[id], id, restored[i], summary);
  }
  return summary;
}

}  // namespace

Result<std::optional<client::ViewPoint>> newest_commit(client::Session& session,
                                                       const std::string& run, uint32_t lineage,
                                                       const std::vector<StateUnit>& units) {
  std::vector<std::byte> bytes(units[kTrainerUnit].bytes);
  const auto read = to_result(session.restore(
      {.run = run, .lineage = lineage, .step = kNewestStep, .newest = true, .memory = true},
      {{kTrainerUnit, 0, bytes.size(), bytes.data()}}));
  if (!read.ok() && read.error().code == ErrorCode::kNotFound) {
    return std::optional<client::ViewPoint>();
  }
  if (!read.ok()) return read.error();
  const client::Restored& trainer = read->front();
  if (trainer.note.empty()) return std::optional(trainer.version);
  return make_error(
      ErrorCode::kCorrupt, "run {}: {}", run,
      older_version_text(units[kTrainerUnit].name, trainer.version.step, trainer.note));
}

std::string older_version_text(const std::string& unit, uint64_t step, const std::string& note) {
  // The note of a restored version already names its unit and step.
  const std::string named = fmt::format("unit {}: step {} ", unit, step);
  return note.starts_with(named)
             ? fmt::format("unit {} is from step {} {}", unit, step, note.substr(named.size()))
             : fmt::format("unit {} is from step {}: {}", unit, step, note);
}

Status restore_newest_stamps(client::Session& session, const std::string& run,
                             const client::ViewPoint& point, const std::vector<StateUnit>& units,
                             std::vector<ExpertVersion> versions, ExpertStamps& stamps) {
  std::vector<std::byte> bytes(units[kTrainerUnit].bytes);
  const auto read = to_result(
      session.restore({.run = run, .lineage = point.lineage, .step = point.step, .newest = true},
                      {{kTrainerUnit, 0, bytes.size(), bytes.data()}}));
  if (!read.ok()) return no_stamps(read.error(), fmt::format("run {}", run), "its experts");
  const ExpertGrid& grid = stamps.grid();
  const auto state = decode_trainer_state(bytes, grid.layers, grid.experts);
  if (!state.ok()) return make_error(state.error().code, "run {} {}", run, state.error().message);
  if (!state->stamps.empty()) versions = take_stamps(state->stamps, units, versions, stamps);
  return restore_stamps(session, run, units, std::move(versions), stamps);
}

Status restore_stamps(client::Session& session, const std::string& run,
                      const std::vector<StateUnit>& units, std::vector<ExpertVersion> versions,
                      ExpertStamps& stamps) {
  std::vector<std::byte> bytes(units[kTrainerUnit].bytes);
  while (!versions.empty()) {
    const ExpertVersion of = versions.front();
    const std::string name = version_name(run, of);
    const auto read = to_result(
        session.restore({.run = run, .lineage = of.lineage, .step = of.step, .exact = true},
                        {{kTrainerUnit, 0, bytes.size(), bytes.data()}}));
    if (!read.ok()) return no_stamps(read.error(), name, units[of.unit].name);
    const ExpertGrid& grid = stamps.grid();
    const auto state = decode_trainer_state(bytes, grid.layers, grid.experts);
    if (!state.ok()) return make_error(state.error().code, "{} {}", name, state.error().message);
    std::vector<ExpertVersion> others = versions;
    if (!state->stamps.empty()) others = take_stamps(state->stamps, units, versions, stamps);
    if (!others.empty() && others.front() == of) {
      return make_error(ErrorCode::kCorrupt,
                        "{} unit trainer: says nothing of unit {}, which that "
                        "commit has",
                        name, units[of.unit].name);
    }
    versions = std::move(others);
  }
  return {};
}

Result<RestoreSummary> restore_units(client::Session& session, const std::string& run,
                                     const client::ViewPoint& view,
                                     const std::vector<StateUnit>& units,
                                     const std::vector<uint32_t>& unit_ids,
                                     const StateMemory& memory, DeviceLink* link, ViewLevel level) {
  const std::vector<Want> wants = wants_of(unit_ids, memory);
  CKPT_ASSIGN(const Answers restored, read_ranges(session,
                                                  {.run = run,
                                                   .lineage = view.lineage,
                                                   .step = view.step,
                                                   .memory = level == ViewLevel::kMemory},
                                                  wants, link));
  RestoreSummary summary = summarize(units, wants, restored, view.step);
  if (summary.torn) return summary;
  CKPT_ASSIGN(std::vector<ExpertVersion> versions, expert_versions(run, units, wants, restored));
  const bool with_trainer_unit =
      std::find(unit_ids.begin(), unit_ids.end(), kTrainerUnit) != unit_ids.end();
  CKPT_TRY(stamps_of_view(session, run, units, std::move(versions), with_trainer_unit, memory));
  return summary;
}

Result<RestoreSummary> restore_older(client::Session& session, const std::string& run,
                                     const client::ViewPoint& view,
                                     const std::vector<StateUnit>& units,
                                     const std::vector<uint32_t>& experts_units,
                                     const StateMemory& memory, DeviceLink* link) {
  const std::vector<Want> wants = wants_of(experts_units, memory);
  CKPT_ASSIGN(
      const Answers restored,
      read_ranges(
          session,
          {.run = run, .lineage = view.lineage, .step = view.step, .newest = true, .memory = true},
          wants, link));
  for (const uint32_t id : experts_units) memory.stamps().of(units[id]) = {};
  return summarize(units, wants, restored, view.step);
}

}  // namespace moetrain
