#include "client/ctl/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "client/ctl/exported_file.h"
#include "client/ctl/model_config.h"
#include "client/ctl/open_files.h"
#include "formats/base/counted.h"
#include "formats/base/printable.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::base::printable;
namespace safetensors = ckpt::safetensors;

constexpr uint64_t kConfigBytesMax = 16 << 20;

// Maps a parse error to exit code 1. Exit code 4 is reserved for damage in the store.
ckpt::Error form_error(const std::string& path, const ckpt::Error& error) {
  return make_error(ErrorCode::kFailedPrecondition, "{}: {}", path, error.message);
}

// Names a file that is not safetensors although it has the name; empty: not recognised.
std::string_view other_format(std::string_view first_bytes) {
  if (first_bytes.starts_with("version https://git-lfs")) {
    return "it is a pointer of Git LFS, not the file: run `git lfs pull` in the folder";
  }
  if (first_bytes.starts_with("PK\x03\x04")) {
    return "it is a ZIP archive, as torch.save writes it, not safetensors";
  }
  return {};
}

Status check_format(const InputFile& input) {
  CKPT_ASSIGN(const auto prefix, input.read_head(32));
  const auto other = other_format(ckpt::as_text(prefix));
  if (other.empty()) return {};
  return make_error(ErrorCode::kFailedPrecondition, "{}: {}", input.path(), other);
}

Result<safetensors::Header> read_header(const InputFile& input) {
  CKPT_ASSIGN(const auto length, input.read_head(safetensors::kLengthBytes));
  const auto bytes = safetensors::header_bytes(length, input.bytes());
  if (!bytes.ok()) return form_error(input.path(), bytes.error());
  CKPT_ASSIGN(const auto prefix, input.read_head(*bytes));
  auto header = safetensors::parse_header(prefix, input.bytes());
  if (!header.ok()) return form_error(input.path(), header.error());
  return header;
}

ckpt::Error not_exported(const InputFile& input, const Manifest& manifest) {
  return make_error(
      ErrorCode::kCorrupt,
      "{}: it is not the file that the export of step {} wrote, but damaged or "
      "exchanged; copy it again from the source of this folder, or, if it was changed "
      "on purpose, remove {} to import the folder like one of another program{}",
      input.path(), manifest.step, kManifestName,
      manifest.resumable ? ", which cannot be resumed" : "");
}

// The number of files in the set that contains `name`: 3 for "model-00001-of-00003.safetensors".
// nullopt: the name belongs to no set. `stem` becomes the common beginning of the set's names.
std::optional<uint64_t> set_size(std::string_view name, std::string_view& stem) {
  constexpr std::string_view kShape = "-00001-of-00003.safetensors";
  if (name.size() <= kShape.size()) return std::nullopt;
  const std::string_view end = name.substr(name.size() - kShape.size());
  for (size_t i = 0; i < kShape.size(); ++i) {
    const bool digit = kShape[i] >= '0' && kShape[i] <= '9';
    if (digit ? end[i] < '0' || end[i] > '9' : end[i] != kShape[i]) return std::nullopt;
  }
  stem = name.substr(0, name.size() - kShape.size());
  uint64_t size = 0;
  for (const char digit : end.substr(10, 5)) size = size * 10 + static_cast<uint64_t>(digit - '0');
  return size;
}

class FolderReader {
 public:
  explicit FolderReader(const std::string& path) : path_(path) {}

  Result<ModelFolder> read() {
    CKPT_ASSIGN(entries_, list(path_));
    CKPT_TRY(read_manifest());
    CKPT_ASSIGN(const std::vector<std::string> names, weight_files());
    constexpr size_t kTexts = 2;
    CKPT_TRY(allow_open_files(path_, names.size() + kTexts));
    for (const std::string& name : names) {
      CKPT_ASSIGN(InputFile input, open(name));
      CKPT_TRY(check_format(input));
      CKPT_ASSIGN(safetensors::Header header, read_header(input));
      CKPT_TRY(check_head(name, input));  // after errors of form, which name the tensor
      add_kept(name, header.data_offset);
      folder_.inputs.push_back(std::move(input));
      folder_.files.push_back({name, std::move(header)});
    }
    CKPT_TRY(read_config());
    if (index_) CKPT_TRY(read_index());
    CKPT_TRY(find_left_out("", entries_));
    return std::move(folder_);
  }

 private:
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  bool has(const char* name) const { return entries_.contains(name); }
  void add_kept(const std::string& name, uint64_t bytes) {
    folder_.kept.push_back({name, bytes, folder_.inputs.size()});
    read_.insert(name);
  }

  static Result<std::set<std::string>> list(const std::string& path) {
    std::error_code error;
    std::filesystem::directory_iterator entry(path, error);
    if (error) {
      const bool none = error == std::errc::no_such_file_or_directory;
      const bool file = error == std::errc::not_a_directory;
      return make_error(none ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: {}", path,
                        none   ? "there is no such folder"
                        : file ? "it is no folder; name the folder that has the files of the model"
                               : error.message());
    }
    std::set<std::string> names;
    for (; entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      if (error) break;
      names.insert(entry->path().filename().string());
    }
    if (error) return make_error(ErrorCode::kIo, "{}: {}", path, error.message());
    return names;
  }

  Result<InputFile> open(const std::string& name) const {
    auto input = InputFile::open(path_, name);
    if (!input.ok() && input.error().code == ErrorCode::kNotFound) {
      return make_error(ErrorCode::kFailedPrecondition, "{}", input.error().message);
    }
    return input;
  }
  Result<std::string> read_text(const std::string& name, uint64_t bytes_max) {
    CKPT_ASSIGN(InputFile input, open(name));
    CKPT_ASSIGN(std::string text, input.read_text(bytes_max));
    last_text_.emplace(std::move(input));
    return text;
  }
  // Keeps the whole file that was read last.
  void keep_text(const std::string& name) {
    add_kept(name, last_text_->bytes());
    folder_.inputs.push_back(*std::move(last_text_));
  }

  // Compares with the export, and takes the checksum that is left to compare.
  Status check_head(const std::string& name, const InputFile& input) {
    auto& checksum = folder_.checksums.emplace_back();
    const auto exported = exported_.find(name);
    if (exported == exported_.end()) {
      if (exported_.empty()) return {};
      folder_.notes.push_back(fmt::format("{}: {} does not list it, so its bytes are not checked",
                                          printable(name), kManifestName));
      return {};
    }
    CKPT_ASSIGN(const ExportedFile there, measure_head(name, input));
    if (!same_head(there, *exported->second)) return not_exported(input, *folder_.manifest);
    checksum = exported->second->crc32c;
    return {};
  }

  Result<std::vector<std::string>> weight_files() {
    if (!has(kIndexName)) {
      return has(kModelName) ? std::vector<std::string>{kModelName} : files_without_index();
    }
    CKPT_ASSIGN(const std::string text, read_text(kIndexName, safetensors::kHeaderBytesMax));
    index_input_.emplace(*std::move(last_text_));
    auto index = WeightIndex::parse(text);
    if (!index.ok()) return form_error(path_, index.error());
    index_.emplace(*std::move(index));
    std::vector<std::string> names = index_->files();
    // mlx_lm writes an index for one file, too.
    if (has(kModelName) && names != std::vector<std::string>{kModelName}) {
      return make_error(ErrorCode::kFailedPrecondition,
                        "{}: it has both {} and {}, which may be of different models; remove one",
                        path_, kModelName, kIndexName);
    }
    return names;
  }

  Result<std::vector<std::string>> files_without_index() const {
    std::vector<std::string> names;
    for (const std::string& name : entries_) {
      if (is_weight_file(name) && !name.starts_with('.')) names.push_back(name);
    }
    if (names.size() == 1) return names;
    std::string_view stem;
    const bool set = !names.empty() && std::ranges::all_of(names, [&](const std::string& name) {
      std::string_view own;
      const auto size = set_size(name, own);
      if (stem.empty()) stem = own;
      return size == names.size() && own == stem;
    });
    if (set) return names;
    const std::string found =
        names.empty() ? "" : fmt::format(", and {} files of tensors that are no set", names.size());
    return make_error(
        ErrorCode::kFailedPrecondition,
        "{}: it has neither {} nor {}, nor one lone .safetensors file, nor one whole set "
        "NAME-00001-of-00003.safetensors{}",
        path_, kModelName, kIndexName, found);
  }

  Status read_config() {
    if (!has(kConfigName)) return {};
    CKPT_ASSIGN(const std::string text, read_text(kConfigName, kConfigBytesMax));
    auto config = read_model_config(text);
    if (!config.ok()) return form_error(at(kConfigName), config.error());
    const bool resumable = folder_.manifest && folder_.manifest->resumable;
    const bool described = folder_.manifest && !folder_.manifest->metadata.empty();
    if (!config->note.empty() && !resumable) {
      folder_.notes.push_back(fmt::format(
          "{}: {}; it is kept as it is, but not in the run's metadata", kConfigName, config->note));
    } else if (described && !same_config(text, folder_.metadata)) {
      folder_.notes.push_back(
          fmt::format("{}: it differs from the one in {}; {}", kConfigName, kManifestName,
                      resumable ? "a run that can be resumed keeps the latter"
                                : "exports write the former, the run's metadata keeps the latter"));
    }
    if (!described && !resumable) folder_.metadata = std::move(config->metadata);
    keep_text(kConfigName);
    return {};
  }

  Status read_index() {
    const auto left_out = index_->check(folder_.files);
    if (!left_out.ok()) return form_error(path_, left_out.error());
    if (!left_out->empty()) {
      folder_.notes.push_back(fmt::format(
          "{}: it leaves out {} of its files, the first {}", kIndexName,
          ckpt::base::counted(left_out->size(), "tensor"), printable(left_out->front())));
    }
    last_text_ = std::move(index_input_);
    keep_text(kIndexName);
    return {};
  }

  Status read_manifest() {
    if (!has(kManifestName)) return {};
    CKPT_ASSIGN(const std::string text, read_text(kManifestName, safetensors::kHeaderBytesMax));
    auto manifest = parse_manifest(text);
    if (!manifest.ok()) return form_error(path_, manifest.error());
    if (manifest->unfinished) {
      return make_error(ErrorCode::kFailedPrecondition,
                        "{}: an export into this folder did not finish; export again",
                        at(kManifestName));
    }
    read_.insert(kManifestName);
    folder_.manifest = *std::move(manifest);
    folder_.metadata = folder_.manifest->metadata;
    if (!folder_.manifest->files) return {};
    for (const ExportedFile& file : *folder_.manifest->files) {
      if (file.crc32c) exported_.emplace(file.name, &file);
    }
    return {};
  }

  // Lists entries that are neither kept nor contain a kept file. `entries`: names in the folder
  // `prefix`, which ends with '/' or is empty. Only folders with a kept file are read.
  Status find_left_out(const std::string& prefix, const std::set<std::string>& entries) {
    for (const std::string& entry : entries) {
      const std::string name = prefix + entry;
      if (read_.contains(name)) continue;
      std::error_code none;
      const bool folder = std::filesystem::is_directory(at(name), none);
      const auto inside = read_.lower_bound(name + "/");
      if (folder && inside != read_.end() && inside->starts_with(name + "/")) {
        CKPT_ASSIGN(const std::set<std::string> names, list(at(name)));
        CKPT_TRY(find_left_out(name + "/", names));
      } else {
        folder_.left_out.push_back(folder ? name + "/" : name);
      }
    }
    return {};
  }

  const std::string& path_;
  std::set<std::string> entries_;
  std::set<std::string> read_;  // files that are kept at least in part, relative to the folder
  std::map<std::string_view, const ExportedFile*> exported_;  // files with a checksum
  std::optional<WeightIndex> index_;
  std::optional<InputFile> index_input_;
  std::optional<InputFile> last_text_;
  ModelFolder folder_;
};

}  // namespace

Result<ModelFolder> read_model_folder(const std::string& path) { return FolderReader(path).read(); }

Status check_contents(const ModelFolder& folder, Progress& progress) {
  uint64_t bytes_total = 0;
  for (size_t i = 0; i < folder.checksums.size(); ++i) {
    if (folder.checksums[i]) bytes_total += folder.inputs[i].bytes();
  }
  if (bytes_total == 0) return {};
  progress.start(bytes_total);
  const auto add = [&](uint64_t bytes) {
    progress.add(bytes);
    return Status();
  };
  for (size_t i = 0; i < folder.checksums.size(); ++i) {
    if (!folder.checksums[i]) continue;
    CKPT_ASSIGN(const uint32_t crc, folder.inputs[i].crc32c(add));
    if (crc == *folder.checksums[i]) continue;
    progress.finish();
    return not_exported(folder.inputs[i], *folder.manifest);
  }
  progress.finish();
  return {};
}

}  // namespace ckptctl
