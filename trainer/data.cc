#include "trainer/data.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "formats/base/assert.h"
#include "formats/base/crc32c.h"
#include "formats/base/unique_fd.h"
#include "trainer/model/philox.h"

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

// Appends the file, whatever size it claims to have; an empty file is an error only if it was named
// itself.
Status append_file(const fs::path& path, bool may_be_empty, uint64_t bytes_max,
                   std::vector<uint8_t>& bytes) {
  const auto failed = [&](const char* why) {
    return make_error(ErrorCode::kInvalidArgument, "data {}: {}", path.string(), why);
  };
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const ckpt::base::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return failed(std::strerror(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return failed(std::strerror(errno));
  // Every rank reads it, and again when it is started anew: it must have an end and stay.
  if (!S_ISREG(status.st_mode)) return failed("not a regular file");
  constexpr size_t kReadBytes = 1u << 20;
  const size_t begin = bytes.size();
  size_t end = begin;
  for (;;) {
    bytes.resize(end + kReadBytes);
    const ssize_t got = ::read(file.get(), bytes.data() + end, kReadBytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(std::strerror(errno));
    end += static_cast<size_t>(got);
    if (end > bytes_max) return failed(fmt::format("over {} bytes in all", bytes_max).c_str());
    if (got == 0) break;
  }
  bytes.resize(end);
  if (end == begin && !may_be_empty) return failed("the file is empty");
  return {};
}

}  // namespace

Corpus::Corpus(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {
  train_bytes_ = bytes_.size() - bytes_.size() / kHeldOutDivisor;
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
  return Corpus(std::move(bytes));
}

Status Corpus::check_fits(uint32_t seq_len) const {
  const uint64_t needed = uint64_t{seq_len} + 1;
  if (train().size() >= needed && held_out().size() >= needed) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "data: {} bytes are too few for sequences of {} tokens: at least {} are needed,"
                    " because one byte in {} is held out",
                    bytes_.size(), seq_len, needed * kHeldOutDivisor, kHeldOutDivisor);
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
