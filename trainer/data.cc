#include "trainer/data.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "formats/base/assert.h"
#include "formats/base/crc32c.h"
#include "trainer/model/philox.h"
#include "trainer/regular_file.h"

namespace moetrain {

namespace fs = std::filesystem;
using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

Result<std::vector<fs::path>> files_below(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  auto entry = fs::recursive_directory_iterator(directory, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.') || name == "build") {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file(error)) {
      files.push_back(entry->path());
    }
  }
  if (error) {
    return make_error(ErrorCode::kInvalidArgument, "data {}: {}", directory.string(),
                      error.message());
  }
  if (files.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "data {}: no files in this directory",
                      directory.string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// An empty file is an error only if it was named itself.
Status append_file(const fs::path& path, bool may_be_empty, uint64_t bytes_max,
                   std::vector<uint8_t>& bytes) {
  const size_t before = bytes.size();
  Status read = append_regular_file(path.string(), bytes_max, bytes);
  if (read.ok() && bytes.size() == before && !may_be_empty) {
    read = make_error(ErrorCode::kInvalidArgument, "the file is empty");
  }
  if (read.ok()) return {};
  return make_error(read.error().code, "data {}: {}", path.string(), read.error().message);
}

uint64_t held_out_bytes(uint64_t bytes) { return bytes / kHeldOutDivisor; }

// " book.txt and 2 more"; empty if there are no paths.
std::string names_of_paths(const std::vector<std::string>& paths) {
  if (paths.empty()) return {};
  if (paths.size() == 1) return " " + paths.front();
  return fmt::format(" {} and {} more", paths.front(), paths.size() - 1);
}

}  // namespace

Corpus::Corpus(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {
  train_bytes_ = bytes_.size() - held_out_bytes(bytes_.size());
  crc32c_ = ckpt::base::crc32c(std::as_bytes(std::span(bytes_)));
}

Result<Corpus> Corpus::load(const std::vector<std::string>& paths, uint64_t total_bytes_max) {
  std::vector<uint8_t> bytes;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) {
      return make_error(ErrorCode::kInvalidArgument, "data {}: {}", path,
                        error ? error.message() : "no such file or directory");
    }
    if (!fs::is_directory(status)) {
      CKPT_TRY(append_file(path, /*may_be_empty=*/false, total_bytes_max, bytes));
      continue;
    }
    CKPT_ASSIGN(const std::vector<fs::path> files, files_below(path));
    for (const fs::path& file : files) {
      CKPT_TRY(append_file(file, /*may_be_empty=*/true, total_bytes_max, bytes));
    }
  }
  if (bytes.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "data {}: no bytes in it",
                      paths.empty() ? "(none)" : paths.front());
  }
  Corpus corpus(std::move(bytes));
  corpus.paths_ = paths;
  return corpus;
}

Status Corpus::check_fits(uint32_t seq_len) const {
  return check_data_fits(paths_, bytes(), seq_len);
}

Status check_data_fits(const std::vector<std::string>& paths, uint64_t bytes, uint32_t seq_len) {
  const uint64_t needed = uint64_t{seq_len} + 1;
  const uint64_t held_out = held_out_bytes(bytes);
  if (bytes - held_out >= needed && held_out >= needed) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "data{}: {} bytes are too few for sequences of {} tokens: at least {} are "
                    "needed, because one byte in {} is held out; name more text with --data",
                    names_of_paths(paths), bytes, seq_len, needed * kHeldOutDivisor,
                    kHeldOutDivisor);
}

Result<std::vector<std::string>> default_data_paths() {
  const char* given = std::getenv("CKPT_SOURCE_DIR");
  const fs::path root = given != nullptr && *given != '\0' ? given : MOETRAIN_SOURCE_DIR;
  std::vector<std::string> paths;
  for (const char* folder : {"formats", "ckptd", "client", "trainer", "kernels"}) {
    std::error_code error;
    if (fs::is_directory(root / folder, error)) paths.push_back((root / folder).string());
  }
  if (paths.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "data {}: the project's own sources are not there; name files by --data",
                      root.string());
  }
  return paths;
}

uint64_t sequence_offset(uint64_t seed, uint64_t step, uint64_t index, uint64_t bytes,
                         uint32_t seq_len) {
  CKPT_ASSERT(bytes > seq_len);
  const auto random = philox(seed, index, step);
  const uint64_t bits = uint64_t{random[1]} << 32 | random[0];
  const uint64_t choices = bytes - seq_len;  // offsets 0 .. bytes - seq_len - 1
  return static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * choices >> 64);
}

void fill_sequences(std::span<const uint8_t> text, uint64_t seed, uint64_t step, uint64_t first,
                    uint64_t count, uint32_t seq_len, std::span<int32_t> tokens,
                    std::span<int32_t> targets) {
  CKPT_ASSERT(tokens.size() == count * seq_len && targets.size() == tokens.size());
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = sequence_offset(seed, step, first + i, text.size(), seq_len);
    const std::span<const uint8_t> from = text.subspan(at, uint64_t{seq_len} + 1);
    std::copy(from.begin(), from.end() - 1, tokens.begin() + i * seq_len);
    std::copy(from.begin() + 1, from.end(), targets.begin() + i * seq_len);
  }
}

}  // namespace moetrain
