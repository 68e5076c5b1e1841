#include "ckptd/io/store_folder.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>
#include <utility>

#include "ckptd/io/store_paths.h"
#include "formats/base/printable.h"

namespace ckptd {

namespace fs = std::filesystem;

namespace {

// Names of the entries; empty if the directory is missing or unreadable.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  return names;
}

// Entries that may exist without a store: those of the top of a file system, and files that ckptd
// creates before the journal: locks, its socket, its log, and the measurement of the disk.
bool may_be_without_store(std::string_view name, const std::string& socket) {
  if (name.starts_with('.') || name == "lost+found" || name == "calibration.bytes") return true;
  if (name == "lock" || name.ends_with(".lock")) return true;
  if (!socket.empty() && name.starts_with(socket)) return true;
  return std::ranges::any_of(std::array{"ckptd.", "io-shape", "aquota.", "quota."},
                             [&](const char* begin) { return name.starts_with(begin); });
}

}  // namespace

ckpt::Status check_store_folder(const std::string& path, const std::string& listen) {
  std::error_code error;
  for (const char* part : {kJournalDirectory, kSegmentsDirectory, kCatalogDirectory}) {
    if (fs::is_directory(fs::path(path) / part, error)) return {};
  }
  const std::string socket = fs::path(listen).filename().string();
  std::vector<std::string> names = names_in(path);
  std::erase_if(names, [&](const auto& name) { return may_be_without_store(name, socket); });
  if (names.empty()) return {};
  return ckpt::make_error(ckpt::ErrorCode::kFailedPrecondition,
                          "data directory {}: it holds {} and no store; name an empty or a new "
                          "directory with --data",
                          path, ckpt::base::printable(*std::ranges::min_element(names)));
}

std::vector<fs::path> missing_folders(const std::string& path) {
  std::vector<fs::path> missing;
  std::error_code error;
  fs::path lowest = fs::absolute(path, error).lexically_normal();
  if (!error && !lowest.has_filename()) lowest = lowest.parent_path();  // "store/"
  while (!error && !fs::exists(lowest, error) && !error) {
    missing.push_back(lowest);
    lowest = lowest.parent_path();
  }
  return missing;
}

NewStoreFolder::~NewStoreFolder() {
  if (created_.empty()) return;
  const fs::path& store = created_.front();
  const std::vector<std::string> names = names_in(store);
  const bool unused = std::ranges::all_of(
      names, [](const auto& name) { return name == "lock" || name.ends_with(".lock"); });
  if (!unused) return;
  std::error_code error;
  for (const std::string& name : names) fs::remove(store / name, error);
  // Parents last; one with anything else in it stays, and so do those above it.
  const bool removed = std::ranges::all_of(
      created_, [&](const fs::path& folder) { return fs::remove(folder, error); });
  if (removed) spdlog::info("removed {}, which has no store yet", store.string());
}

}  // namespace ckptd
