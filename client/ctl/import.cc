#include "client/ctl/import.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "formats/base/checked.h"
#include "formats/base/unique_fd.h"
#include "formats/json_text.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
namespace safetensors = ckpt::safetensors;

// A configuration becomes part of the run's metadata, of which the daemon takes as much.
constexpr uint64_t kConfigBytesMax = 1 << 20;
constexpr uint64_t kPieceBytes = 8 << 20;
constexpr uint32_t kOneCallMs = 60'000;

// A regular file, opened for reading.
struct Input {
  std::string path;
  ckpt::base::UniqueFd fd;
  uint64_t bytes = 0;

  Status read(uint64_t offset, ckpt::MutableByteView into) const {
    while (!into.empty()) {
      const ssize_t got = ::pread(fd.get(), into.data(), into.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return make_error(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
      if (got == 0) return make_error(ErrorCode::kIo, "{}: it ends at byte {}", path, offset);
      offset += static_cast<uint64_t>(got);
      into = into.subspan(static_cast<size_t>(got));
    }
    return {};
  }
};

// nullopt: there is none.
Result<std::optional<Input>> open_input(const std::string& folder, const std::string& name) {
  Input input;
  input.path = folder + "/" + name;
  // Not waiting for a writer, should it be a pipe.
  input.fd = ckpt::base::UniqueFd(::open(input.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!input.fd.valid() && errno == ENOENT) return std::optional<Input>();
  struct stat about {};
  if (!input.fd.valid() || ::fstat(input.fd.get(), &about) != 0) {
    return make_error(ErrorCode::kIo, "{}: {}", input.path, std::strerror(errno));
  }
  if (!S_ISREG(about.st_mode)) {
    return make_error(ErrorCode::kInvalidArgument, "{}: not a regular file", input.path);
  }
  input.bytes = static_cast<uint64_t>(about.st_size);
  return std::optional<Input>(std::move(input));
}

Result<Input> open_needed(const std::string& folder, const std::string& name) {
  CKPT_ASSIGN(std::optional<Input> input, open_input(folder, name));
  if (input) return *std::move(input);
  return make_error(ErrorCode::kNotFound, "{}/{}: there is no such file", folder, name);
}

// nullopt: there is none.
Result<std::optional<std::string>> read_text(const std::string& folder, const std::string& name,
                                             uint64_t bytes_max) {
  CKPT_ASSIGN(const std::optional<Input> input, open_input(folder, name));
  if (!input) return std::optional<std::string>();
  if (input->bytes > bytes_max) {
    return make_error(ErrorCode::kInvalidArgument, "{}: {} bytes, the most is {}", input->path,
                      input->bytes, bytes_max);
  }
  std::string text(input->bytes, '\0');
  CKPT_TRY(input->read(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return std::optional(std::move(text));
}

Result<safetensors::Header> read_header(const Input& input) {
  const auto about = [&](const ckpt::Error& error) {
    return ckpt::Error{error.code, fmt::format("{}: {}", input.path, error.message)};
  };
  std::vector<std::byte> prefix(std::min(input.bytes, safetensors::kLengthBytes));
  CKPT_TRY(input.read(0, prefix));
  const auto bytes = safetensors::header_bytes(prefix, input.bytes);
  if (!bytes.ok()) return about(bytes.error());
  prefix.resize(*bytes);
  CKPT_TRY(input.read(0, prefix));
  auto header = safetensors::parse_header(prefix, input.bytes);
  if (!header.ok()) return about(header.error());
  return header;
}

// Everything of the folder but the tensors' bytes.
struct Folder {
  std::vector<Input> inputs;
  std::vector<TensorFile> files;  // of these
  std::optional<Manifest> manifest;
  std::string metadata;
};

// As readers of such folders do: model.safetensors before an index.
Result<Folder> read_folder(const std::string& path) {
  Folder folder;
  std::vector<std::string> names = {kModelName};
  CKPT_ASSIGN(const std::optional<Input> single, open_input(path, kModelName));
  std::optional<std::string> index;
  if (!single) {
    CKPT_ASSIGN(index, read_text(path, kIndexName, safetensors::kHeaderBytesMax));
    if (!index) {
      return make_error(ErrorCode::kNotFound, "{}: it has neither {} nor {}", path, kModelName,
                        kIndexName);
    }
    CKPT_ASSIGN(names, files_of_index(*index));
  }
  for (const std::string& name : names) {
    CKPT_ASSIGN(Input input, open_needed(path, name));
    CKPT_ASSIGN(safetensors::Header header, read_header(input));
    folder.inputs.push_back(std::move(input));
    folder.files.push_back({name, std::move(header)});
  }
  if (index) CKPT_TRY(check_index(*index, folder.files));
  CKPT_ASSIGN(const auto manifest, read_text(path, kManifestName, safetensors::kHeaderBytesMax));
  if (manifest) {
    CKPT_ASSIGN(folder.manifest, parse_manifest(*manifest));
    folder.metadata = folder.manifest->metadata;
    return folder;
  }
  CKPT_ASSIGN(const auto config, read_text(path, kConfigName, kConfigBytesMax));
  if (!config) return folder;
  if (const Status json = ckpt::check_json(*config); !json.ok()) {
    return make_error(ErrorCode::kInvalidArgument, "{}/{}: {}", path, kConfigName,
                      json.error().message);
  }
  folder.metadata = fmt::format("{{\"hf_config\":{}}}", *config);
  return folder;
}

ckpt::client::UnitInfo to_info(const ckpt::UnitSpec& unit) {
  ckpt::client::UnitInfo info;
  info.name = unit.name;
  info.layer = unit.layer ? int64_t{*unit.layer} : -1;
  info.expert = unit.expert ? int64_t{*unit.expert} : -1;
  info.part = ckpt::unit_part_name(unit.part);
  info.bytes = unit.bytes;
  info.tensors.reserve(unit.tensors.size());
  for (const ckpt::TensorSpec& tensor : unit.tensors) {
    info.tensors.push_back(
        {tensor.name, std::string(ckpt::dtype_name(tensor.dtype)), tensor.shape, tensor.offset});
  }
  return info;
}

// The run and an epoch of it, which is ours alone. Returns its lineage.
Result<uint32_t> begin_run(ckpt::client::Session& session, const ImportLayout& layout,
                           const std::string& metadata) {
  std::vector<ckpt::client::UnitInfo> units;
  units.reserve(layout.units.size());
  for (const ckpt::UnitSpec& unit : layout.units) units.push_back(to_info(unit));
  if (auto done = session.register_units(units, metadata); !done) return as_error(done.error());
  ckpt::client::JoinOptions alone;
  alone.size = 1;
  const auto joined = session.join(alone);
  if (!joined) return as_error(joined.error());
  return joined->lineage;
}

// Returns what alarms the snapshot has raised.
Result<std::string> write_commit(ckpt::client::Session& session, const Folder& folder,
                                 const ImportLayout& layout, uint64_t step, Progress& progress) {
  ckpt::client::SnapshotOptions plan;
  plan.step = step;
  plan.streams = true;
  plan.units.reserve(layout.units.size());
  plan.fragments.reserve(layout.units.size());
  for (uint32_t unit = 0; unit < layout.units.size(); ++unit) {
    plan.units.push_back(unit);
    plan.fragments.push_back({0, unit, 0, layout.units[unit].bytes});
  }
  auto snapshot = session.begin(plan);
  if (!snapshot) return as_error(snapshot.error());
  progress.start(layout.data_bytes);
  std::vector<std::byte> buffer(kPieceBytes);
  for (const WantedBytes& piece : layout.pieces) {
    for (uint64_t at = 0; at < piece.length;) {
      const uint64_t length = std::min(kPieceBytes, piece.length - at);
      const auto bytes = ckpt::MutableByteView(buffer).first(length);
      CKPT_TRY(folder.inputs[piece.tag].read(piece.destination + at, bytes));
      auto written = snapshot->write(piece.unit, piece.offset + at, bytes.data(), length);
      if (!written) return as_error(written.error());
      at += length;
      progress.add(length);
    }
  }
  progress.finish();
  if (auto ended = snapshot->end(); !ended) return as_error(ended.error());
  if (auto durable = snapshot->wait(CKPT_LEVEL_DURABLE, kOneCallMs); !durable) {
    return as_error(durable.error());
  }
  return snapshot->info().alarms;
}

// A run of that name may be there from an import that failed; then it has no commits.
Status check_new(Link& link, const std::string& run) {
  const auto log = link.document("log", {{"target", run}, {"limit", 1}});
  if (!log.ok() && log.error().code != ErrorCode::kNotFound) return log.error();
  if (!log.ok() || log->empty()) return {};
  return make_error(ErrorCode::kAlreadyExists,
                    "run {}: it has commits; import makes a run of another name, or of this one "
                    "after `ckptctl rm {}`",
                    run, run);
}

}  // namespace

Result<Json> import_folder(Link& link, const ImportRequest& request, Progress& progress) {
  CKPT_TRY(ckpt::validate_name("run", request.run));
  CKPT_ASSIGN(const Folder folder, read_folder(request.folder));
  CKPT_ASSIGN(const ImportLayout layout, make_import_layout(folder.files, folder.manifest));
  CKPT_TRY(check_new(link, request.run));
  if (folder.manifest && folder.manifest->resumable &&
      request.step.value_or(folder.manifest->step) != folder.manifest->step) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--step {}: {} is a run's state at step {}, from which it can be resumed",
                      *request.step, request.folder, folder.manifest->step);
  }
  const uint64_t step =
      request.step.value_or(folder.manifest ? folder.manifest->step : uint64_t{0});
  CKPT_ASSIGN(ckpt::client::Session session, link.train(request.run));
  CKPT_ASSIGN(const uint32_t lineage, begin_run(session, layout, folder.metadata));
  CKPT_ASSIGN(const std::string alarms, write_commit(session, folder, layout, step, progress));
  if (auto left = session.leave(); !left) return as_error(left.error());
  Json names = Json::array();
  for (const TensorFile& file : folder.files) names.push_back(file.name);
  return Json{{"run", request.run},
              {"lineage", lineage},
              {"step", step},
              {"folder", request.folder},
              {"files", std::move(names)},
              {"tensors", layout.tensors},
              {"units", layout.units.size()},
              {"bytes", layout.data_bytes},
              {"resumable", folder.manifest && folder.manifest->resumable},
              {"alarms", alarms}};
}

}  // namespace ckptctl
