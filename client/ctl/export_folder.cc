#include "client/ctl/export_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "client/ctl/export_layout.h"
#include "client/ctl/exported_file.h"
#include "client/ctl/input_file.h"
#include "client/ctl/model_config.h"
#include "client/ctl/open_files.h"
#include "formats/base/json_dump.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
namespace fs = std::filesystem;
namespace safetensors = ckpt::safetensors;

ckpt::Error io_error(const std::string& path, const std::error_code& error) {
  return make_error(ErrorCode::kIo, "{}: {}", path, error.message());
}

// Recognizes files of an export by an older version, whose ckptd.json does not list its files.
class KnownTensors {
 public:
  static Result<KnownTensors> of(const Manifest& manifest) {
    KnownTensors known;
    known.metadata_ = manifest.metadata;
    for (const ViewUnit& unit : manifest.units) {
      CKPT_ASSIGN(const auto tensors, all_bytes_of(unit));
      for (const ckpt::TensorSpec& tensor : tensors) known.tensors_[tensor.name] = tensor;
    }
    return known;
  }
  bool has(const safetensors::Tensor& tensor) const {
    const auto found = tensors_.find(tensor.name);
    return found != tensors_.end() && found->second.dtype == tensor.dtype &&
           found->second.shape == tensor.shape;
  }
  // True if the file has only such tensors, the index lists only such tensors, or config.json
  // matches the export's metadata.
  Result<bool> made(const std::string& name, const InputFile& file) const {
    if (name == kConfigName) {
      CKPT_ASSIGN(const std::string text, file.read_text(safetensors::kHeaderBytesMax));
      return same_config(text, metadata_);
    }
    if (name == kIndexName) {
      CKPT_ASSIGN(const std::string text, file.read_text(safetensors::kHeaderBytesMax));
      const auto index = WeightIndex::parse(text);
      return index.ok() && std::ranges::all_of(index->map(), [&](const auto& listed) {
               return tensors_.contains(listed.first);
             });
    }
    CKPT_ASSIGN(auto head, file.read_head(safetensors::kLengthBytes));
    const auto bytes = safetensors::header_bytes(head, file.bytes());
    if (!bytes.ok()) return false;
    CKPT_ASSIGN(head, file.read_head(*bytes));
    const auto header = safetensors::parse_header(head, file.bytes());
    return header.ok() &&
           std::ranges::all_of(header->tensors, [&](const auto& tensor) { return has(tensor); });
  }

 private:
  std::map<std::string, ckpt::TensorSpec> tensors_;
  std::string metadata_;
};

// True if the file is one of those listed. `there` describes its head, and gets its crc32c if the
// whole file must be read.
Result<bool> is_one_of(const std::vector<ExportedFile>& listed, const InputFile& file,
                       const InputFile::EachPart& each, ExportedFile& there) {
  for (const ExportedFile& one : listed) {
    if (!same_head(one, there)) continue;
    if (!one.crc32c) return true;
    if (!there.crc32c) {
      CKPT_ASSIGN(there.crc32c, file.crc32c(each));
    }
    if (one.crc32c == there.crc32c) return true;
  }
  return false;
}

}  // namespace

Result<ExportFolder> ExportFolder::open(const std::string& path, std::vector<std::string> names,
                                        bool resumable, const InputFile::EachPart& each) {
  ExportFolder folder(path, std::move(names), resumable);
  // Descriptors: one for each file until publish() renames it, and one for ckptd.json.
  CKPT_TRY(allow_open_files(path, folder.names_.size() + 1));
  CKPT_TRY(folder.make_folder(path));
  CKPT_TRY(folder.lock());
  CKPT_TRY(folder.prepare(each));
  return folder;
}

Status ExportFolder::make_folder(const std::string& path) {
  std::vector<fs::path> missing;  // parents last
  std::error_code error;
  fs::path next = path;
  for (; !next.empty() && !fs::exists(next, error); next = next.parent_path()) {
    missing.push_back(next);
  }
  for (; !missing.empty(); missing.pop_back()) {
    if (fs::create_directory(missing.back(), error)) created_.push_back(missing.back().string());
    if (error) return io_error(path, error);
  }
  return {};
}

void ExportFolder::remove_created() const {
  for (auto folder = created_.rbegin(); folder != created_.rend(); ++folder) {
    ::rmdir(folder->c_str());  // fails if the folder has files
  }
}

// File systems without locks are used without a lock.
Status ExportFolder::lock() {
  lock_ = ckpt::base::UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock_.valid()) return io_error(path_, {errno, std::generic_category()});
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return {};
  created_.clear();  // the other export uses the folder, which may look empty meanwhile
  return make_error(ErrorCode::kFailedPrecondition,
                    "{}: another export is writing into this folder", path_);
}

std::set<std::string> ExportFolder::folders() const {
  std::set<std::string> folders = {path_};
  for (const std::string& name : names_) {
    for (fs::path parent = fs::path(name).parent_path(); !parent.empty();
         parent = parent.parent_path()) {
      folders.insert(at(parent.string()));
    }
  }
  return folders;
}

Status ExportFolder::prepare(const InputFile::EachPart& each) {
  for (const std::string& folder : folders()) CKPT_TRY(remove_leftovers(folder));
  const auto manifest = InputFile::open(path_, kManifestName);
  if (manifest.ok()) {
    CKPT_ASSIGN(const std::string text, manifest->read_text(safetensors::kHeaderBytesMax));
    const auto earlier = parse_manifest(text);
    if (earlier.ok()) return take_earlier(*earlier, each);
    return make_error(ErrorCode::kFailedPrecondition,
                      "{}: cannot read this manifest, so earlier files cannot be identified: {}; "
                      "remove it or export into another folder",
                      at(kManifestName), earlier.error().message);
  }
  if (manifest.error().code != ErrorCode::kNotFound) return manifest.error();
  std::vector<std::string> names = {kModelName, kIndexName, kConfigName};
  names.insert(names.end(), names_.begin(), names_.end());
  for (const std::string& name : names) {
    std::error_code none;
    if (!fs::exists(fs::symlink_status(at(name), none))) continue;
    return make_error(ErrorCode::kAlreadyExists,
                      "{} exists and is not from an export (there is no {} beside it); remove it "
                      "first",
                      at(name), kManifestName);
  }
  return {};
}

// Finds the files of the earlier export in the folder. A file in the way that does not belong to
// the export, or has changed since, is an error.
Status ExportFolder::take_earlier(const Manifest& earlier, const InputFile::EachPart& each) {
  if (earlier.resumable && !resumable_) {
    return make_error(ErrorCode::kAlreadyExists,
                      "{}: this folder has a resumable export, of step {}; an export without "
                      "--resumable would remove what a resume needs: export into another folder, "
                      "or remove this one first",
                      path_, earlier.step);
  }
  std::set<std::string> candidates(names_.begin(), names_.end());
  candidates.insert({kModelName, kIndexName, kConfigName});
  std::map<std::string, std::vector<ExportedFile>> described;
  for (const auto* list : {earlier.files ? &*earlier.files : nullptr, &earlier.replaced}) {
    if (list == nullptr) continue;
    for (const ExportedFile& file : *list) {
      candidates.insert(file.name);
      described[file.name].push_back(file);
    }
  }
  CKPT_ASSIGN(const KnownTensors known, KnownTensors::of(earlier));
  if (const auto index = InputFile::open(path_, kIndexName); index.ok()) {
    CKPT_ASSIGN(const std::string text, index->read_text(safetensors::kHeaderBytesMax));
    if (const auto listed = WeightIndex::parse(text); listed.ok()) {
      for (std::string& file : listed->files()) candidates.insert(std::move(file));
    }
  }
  for (const std::string& name : candidates) {
    const auto file = InputFile::open(path_, name);
    if (!file.ok() && file.error().code == ErrorCode::kNotFound) continue;
    if (!file.ok()) return file.error();
    CKPT_ASSIGN(ExportedFile there, measure_head(name, *file));
    CKPT_ASSIGN(bool ours, is_one_of(described[name], *file, each, there));
    if (!ours && !earlier.files) {
      CKPT_ASSIGN(ours, known.made(name, *file));
    }
    if (!ours) {
      return make_error(
          ErrorCode::kAlreadyExists,
          "{} is not the file that {} lists, or has changed since that export; move it away "
          "or export into another folder",
          at(name), kManifestName);
    }
    earlier_.push_back(std::move(there));
  }
  return {};
}

bool ExportFolder::is_new(const std::string& name) const {
  return std::ranges::find(names_, name) != names_.end();
}

Result<NewFile> ExportFolder::create(const std::string& name, uint64_t bytes) {
  CKPT_TRY(make_folder(fs::path(at(name)).parent_path().string()));
  return NewFile::create(path_, name, bytes);
}

Status ExportFolder::write_manifest(const Manifest& manifest) {
  const std::string text = ckpt::base::dump_json(manifest_json(manifest), 2) + "\n";
  CKPT_ASSIGN(NewFile file, NewFile::create(path_, kManifestName, text.size()));
  CKPT_TRY(file.write(0, ckpt::as_bytes(text)));
  return file.commit();
}

Status ExportFolder::remove(const std::string& name) const {
  if (::unlink(at(name).c_str()) != 0 && errno != ENOENT) {
    return io_error(at(name), {errno, std::generic_category()});
  }
  // A subfolder is removed with its last file. rmdir leaves symbolic links to folders alone.
  for (fs::path parent = fs::path(name).parent_path(); !parent.empty();
       parent = parent.parent_path()) {
    if (::rmdir(at(parent.string()).c_str()) != 0) break;
  }
  return {};
}

Status ExportFolder::sync_folders() const {
  for (const std::string& folder : folders()) CKPT_TRY(sync_folder(folder));
  return {};
}

Result<std::vector<std::string>> ExportFolder::publish(std::vector<NewFile>& files,
                                                       Manifest manifest) {
  // Steps that take long or need space come before the earlier export is touched.
  for (NewFile& file : files) CKPT_TRY(file.sync());
  for (NewFile& file : files) CKPT_TRY(file.hide());
  manifest.unfinished = true;
  manifest.replaced = earlier_;
  CKPT_TRY(write_manifest(manifest));
  // A reader must not find an index that lists other files.
  CKPT_TRY(remove(kIndexName));
  for (NewFile& file : files) CKPT_TRY(file.rename());
  CKPT_TRY(sync_folders());
  std::vector<std::string> removed;
  for (const ExportedFile& file : earlier_) {
    if (is_new(file.name)) continue;
    CKPT_TRY(remove(file.name));
    removed.push_back(file.name);
  }
  manifest.unfinished = false;
  CKPT_TRY(write_manifest(manifest));
  created_.clear();
  return removed;
}

}  // namespace ckptctl
