#include "client/ctl/import.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <span>
#include <tuple>

#include "client/ctl/daemon_watch.h"
#include "client/ctl/file_windows.h"
#include "client/ctl/model_folder.h"
#include "client/ctl/original_files.h"
#include "client/ctl/say.h"
#include "formats/base/assert.h"
#include "formats/step.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

constexpr uint64_t kPieceBytes = 8 << 20;
constexpr uint32_t kOneCallMs = 60'000;

ckpt::client::UnitInfo to_info(const ckpt::UnitSpec& unit) {
  ckpt::client::UnitInfo info;
  info.name = unit.name;
  info.layer = unit.layer ? int64_t{*unit.layer} : -1;
  info.expert = unit.expert ? int64_t{*unit.expert} : -1;
  info.part = ckpt::unit_part_name(unit.part);
  info.bytes = unit.bytes;
  if (unit.name == kFilesUnit) info.flags = CKPT_UNIT_CONSTANT;
  info.tensors.reserve(unit.tensors.size());
  for (const ckpt::TensorSpec& tensor : unit.tensors) {
    info.tensors.push_back(
        {tensor.name, std::string(ckpt::dtype_name(tensor.dtype)), tensor.shape, tensor.offset});
  }
  return info;
}

// Creates the run and joins as its only rank. Returns its lineage.
Result<uint32_t> begin_run(ckpt::client::Session& session, const ImportLayout& layout,
                           const std::string& metadata) {
  std::vector<ckpt::client::UnitInfo> units;
  units.reserve(layout.units.size());
  for (const ckpt::UnitSpec& unit : layout.units) units.push_back(to_info(unit));
  if (auto done = session.register_units(units, metadata); !done) {
    // The command line is valid, but the folder is not.
    ckpt::Error error = as_error(done.error());
    if (error.code == ErrorCode::kInvalidArgument) error.code = ErrorCode::kFailedPrecondition;
    return error;
  }
  ckpt::client::JoinOptions alone;
  alone.size = 1;
  const auto joined = session.join(alone);
  if (!joined) return as_error(joined.error());
  return joined->lineage;
}

// One fragment for each spread piece, since several of them are written at a time; else one for all
// pieces that follow each other.
std::vector<ckpt_fragment> fragments_of(const std::vector<WantedBytes>& pieces) {
  std::vector<ckpt_fragment> fragments;
  const WantedBytes* last = nullptr;
  for (const WantedBytes& piece : pieces) {
    const bool follows = last != nullptr && last->unit == piece.unit;
    if (follows && !last->spread() && !piece.spread()) {
      fragments.back().length += piece.length;
    } else {
      fragments.push_back({0, piece.unit, piece.offset, piece.length});
    }
    last = &piece;
  }
  return fragments;
}

class CommitWriter {
 public:
  CommitWriter(ckpt::client::Snapshot& snapshot, const ModelFolder& folder, Progress& progress)
      : snapshot_(snapshot), folder_(folder), progress_(progress) {}

  Status write(const std::vector<WantedBytes>& pieces) {
    std::vector<WantedBytes> spread;
    std::vector<std::byte> buffer(kPieceBytes);
    for (const WantedBytes& piece : pieces) {
      if (piece.spread()) spread.push_back(piece);
      if (!piece.spread()) CKPT_TRY(write_contiguous(piece, buffer));
    }
    std::ranges::sort(spread, {}, [](const WantedBytes& piece) {
      return std::tuple(piece.tag, piece.destination);
    });
    const std::span<const WantedBytes> rest(spread);
    for (size_t at = 0; at < rest.size();) {
      size_t end = at;
      while (end < rest.size() && rest[end].tag == rest[at].tag) ++end;
      CKPT_TRY(write_spread(rest.subspan(at, end - at)));
      at = end;
    }
    return {};
  }

 private:
  Status write_contiguous(const WantedBytes& piece, ckpt::MutableByteView buffer) {
    for (uint64_t at = 0; at < piece.length;) {
      const WantedBytes part = part_of(piece, at, std::min(buffer.size(), piece.length - at));
      const auto bytes = buffer.first(part.length);
      CKPT_TRY(folder_.inputs[part.tag].read(part.destination, bytes));
      CKPT_TRY(write_part(part, bytes));
      at += part.length;
    }
    return {};
  }
  // Reads the rows of all pieces of a tensor at once. The pieces are in the same file.
  Status write_spread(std::span<const WantedBytes> pieces) {
    memory_.resize(kReadBytes);
    std::vector<std::byte> image(kTileBytes);
    FileWindows windows(pieces, kReadBytes);
    for (FileWindow window; windows.next(window);) {
      CKPT_ASSERT_MSG(is_filled(window), "a tensor's blocks do not cover it");
      Tiles tiles(window);
      for (FileWindow tile; tiles.next(tile);) {
        const auto bytes = ckpt::MutableByteView(image).first(tile.bytes);
        CKPT_TRY(folder_.inputs[pieces[0].tag].read(tile.begin, bytes));
        pack(tile, bytes, memory_);
      }
      ckpt::ByteView rest = memory_;
      for (const WantedBytes& part : window.pieces) {
        CKPT_TRY(write_part(part, rest.first(part.length)));
        rest = rest.subspan(part.length);
      }
    }
    return {};
  }
  Status write_part(const WantedBytes& part, ckpt::ByteView bytes) {
    auto written = snapshot_.write(part.unit, part.offset, bytes.data(), bytes.size());
    if (!written) return as_error(written.error());
    progress_.add(bytes.size());
    return {};
  }

  ckpt::client::Snapshot& snapshot_;
  const ModelFolder& folder_;
  Progress& progress_;
  std::vector<std::byte> memory_;  // spread pieces, one after another; empty until needed
};

// Writes the commit. Returns the alarms that the snapshot has raised.
Result<std::string> write_commit(ckpt::client::Session& session, const ModelFolder& folder,
                                 const ImportLayout& layout, uint64_t step, Progress& progress) {
  ckpt::client::SnapshotOptions plan;
  plan.step = step;
  plan.streams = true;
  plan.units.reserve(layout.units.size());
  for (uint32_t unit = 0; unit < layout.units.size(); ++unit) plan.units.push_back(unit);
  plan.fragments = fragments_of(layout.pieces);
  auto snapshot = session.begin(plan);
  if (!snapshot) return as_error(snapshot.error());
  uint64_t bytes_total = 0;
  for (const WantedBytes& piece : layout.pieces) bytes_total += piece.length;
  progress.start(bytes_total);
  CKPT_TRY(CommitWriter(*snapshot, folder, progress).write(layout.pieces));
  progress.finish();
  for (const InputFile& input : folder.inputs) CKPT_TRY(input.check_unchanged());
  if (auto ended = snapshot->end(); !ended) return as_error(ended.error());
  if (auto durable = snapshot->wait(CKPT_LEVEL_DURABLE, kOneCallMs); !durable) {
    return as_error(durable.error());
  }
  return snapshot->info().alarms;
}

struct ImportedCommit {
  uint32_t lineage = 0;
  std::string alarms;
};

// Creates the run and its only commit. An error reports whether ckptd was silent. The run may exist
// then, even with its commit; the error says what to do with it.
Result<ImportedCommit> commit_import(Link& link, ckpt::client::Session& session,
                                     const ModelFolder& folder, const ImportLayout& layout,
                                     const std::string& run, uint64_t step, Progress& progress) {
  bool begun = false;
  const auto import = [&]() -> Result<ImportedCommit> {
    CKPT_ASSIGN(const uint32_t lineage, begin_run(session, layout, folder.metadata));
    begun = true;
    CKPT_ASSIGN(std::string alarms, write_commit(session, folder, layout, step, progress));
    return ImportedCommit{lineage, std::move(alarms)};
  };
  Result<ImportedCommit> imported = import();
  if (imported.ok()) return imported;
  // A refusal to begin leaves nothing behind; a missing answer may. kAborted: the wait was ended
  // because no ckptd listens.
  const ErrorCode code = imported.error().code;
  const bool no_answer = code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded ||
                         code == ErrorCode::kAborted;
  if (!begun && !no_answer) return imported.error();
  warn(
      "the import of run {} may not be complete: look with `ckptctl log {}`; without a commit, "
      "repeat the import, or remove the run with `ckptctl rm {}`",
      run, run, run);
  return with_silence(std::move(imported).error(), link.socket(),
                      std::chrono::milliseconds(session.silence_ms()), session.fd() >= 0);
}

// Experts that have a unit. An expert is identified by its list, layer and number: a model of two
// towers has two lists for each layer.
struct ExpertCount {
  size_t experts = 0;
  size_t numbers = 0;  // pairs of layer and expert
};
ExpertCount count_experts(const ImportLayout& layout) {
  std::set<std::tuple<std::string_view, uint32_t, uint32_t>> experts;
  std::set<std::pair<uint32_t, uint32_t>> numbers;
  for (const ckpt::UnitSpec& unit : layout.units) {
    if (!unit.expert) continue;
    const uint32_t layer = unit.layer.value_or(0);
    const size_t end = unit.name.find(fmt::format("experts.{}", *unit.expert));
    const std::string_view name = unit.name;
    experts.emplace(name.substr(0, end == std::string::npos ? 0 : end), layer, *unit.expert);
    numbers.emplace(layer, *unit.expert);
  }
  return {experts.size(), numbers.size()};
}

// The step of the commit: the requested step, else the step in ckptd.json.
Result<uint64_t> step_of(const ImportRequest& request, const std::optional<Manifest>& manifest) {
  const bool resumable = manifest && manifest->resumable;
  if (resumable && request.step.value_or(manifest->step) != manifest->step) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "--step {}: {} is the state of a run at step {}, and resumes as that step only; "
        "leave --step out",
        *request.step, request.folder, manifest->step);
  }
  const uint64_t step = request.step.value_or(manifest ? manifest->step : uint64_t{0});
  const Status possible = ckpt::check_step(step);
  if (possible.ok()) return step;
  if (request.step) {
    return make_error(possible.error().code, "--step {}: {}", step, possible.error().message);
  }
  return make_error(ErrorCode::kFailedPrecondition, "{}/{}: step {}: {}", request.folder,
                    kManifestName, step, possible.error().message);
}

// A failed import may have left a run of this name; such a run has no commits.
Status check_new(Link& link, const std::string& run) {
  const auto log = link.document("log", {{"target", run}, {"limit", 1}});
  if (!log.ok() && log.error().code != ErrorCode::kNotFound) return log.error();
  if (!log.ok() || log->empty()) return {};
  return make_error(ErrorCode::kAlreadyExists,
                    "run {}: it has commits, and import makes a new run: choose another name, or "
                    "remove this run first (`ckptctl rm {}`)",
                    run, run);
}

}  // namespace

Result<Json> import_folder(Link& link, const ImportRequest& request, Progress& progress) {
  CKPT_TRY(ckpt::validate_name("run", request.run));
  CKPT_ASSIGN(ModelFolder folder, read_model_folder(request.folder));
  CKPT_ASSIGN(ImportLayout layout, make_import_layout(folder.files, folder.manifest));
  CKPT_TRY(check_new(link, request.run));
  const bool resumable = folder.manifest && folder.manifest->resumable;
  CKPT_ASSIGN(const uint64_t step, step_of(request, folder.manifest));
  // A resumable run may contain the files of its own first import.
  const size_t model_units =
      layout.units.size() -
      static_cast<size_t>(std::ranges::count(layout.units, kFilesUnit, &ckpt::UnitSpec::name));
  const bool remembers = model_units < layout.units.size();
  // A trainer that resumes the run registers its own units and no other.
  if (!resumable) CKPT_TRY(add_files_unit(folder.kept, layout));
  if (resumable && !remembers && folder.files.size() > 1) {
    folder.notes.emplace_back(
        "shard sizes of this folder are not stored; use `export --shard-bytes` to write shards");
  }
  const ExpertCount count = count_experts(layout);
  if (count.experts > count.numbers) {
    folder.notes.push_back(
        fmt::format("two lists of experts share layer numbers: `log` and `experts` count {} of {} "
                    "experts",
                    count.numbers, count.experts));
  }
  Progress checking("check of the files");
  CKPT_TRY(check_contents(folder, checking));
  CKPT_ASSIGN(ckpt::client::Session session, link.train(request.run));
  CKPT_ASSIGN(const ImportedCommit imported,
              commit_import(link, session, folder, layout, request.run, step, progress));
  if (auto left = session.leave(); !left) return as_error(left.error());
  Json names = Json::array();
  for (const TensorFile& file : folder.files) names.push_back(file.name);
  return Json{
      {"run", request.run},       {"lineage", imported.lineage}, {"step", step},
      {"folder", request.folder}, {"files", std::move(names)},   {"tensors", layout.tensors},
      {"units", model_units},     {"experts", count.experts},    {"bytes", layout.data_bytes},
      {"resumable", resumable},   {"left_out", folder.left_out}, {"notes", folder.notes},
      {"alarms", imported.alarms}};
}

}  // namespace ckptctl
