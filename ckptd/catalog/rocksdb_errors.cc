#include "ckptd/catalog/rocksdb_errors.h"

#include <rocksdb/status.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "formats/base/errno_code.h"

namespace ckptd {

using ckpt::ErrorCode;

namespace {

// RocksDB keeps only the text of an errno, after the text of the operation that failed. It also
// reports some of these failures as corruption.
std::optional<ErrorCode> code_in_text(const std::string& text) {
  constexpr std::array kErrors = {EIO,       EUCLEAN, EBADMSG, EILSEQ,  EREMOTEIO, ENODATA,
                                  ENOSPC,    EFBIG,   EDQUOT,  EACCES,  EPERM,     EROFS,
                                  EMFILE,    ENFILE,  ENOMEM,  ENOBUFS, EAGAIN,    EINTR,
                                  ETIMEDOUT, ESTALE,  ENODEV,  ENXIO,   ELOOP,     ENOLCK};
  for (const int error : kErrors) {
    if (text.find(std::strerror(error)) != std::string::npos) return ckpt::code_of_errno(error);
  }
  return std::nullopt;
}

}  // namespace

ErrorCode rocksdb_error_code(const rocksdb::Status& status) {
  if (status.IsNoSpace()) return ErrorCode::kResourceExhausted;
  const auto named = code_in_text(status.ToString());
  if (named) return *named;
  const bool passes = status.IsBusy() || status.IsTimedOut() || status.IsTryAgain() ||
                      status.IsIncomplete() || status.IsAborted() || status.IsMemoryLimit() ||
                      status.IsShutdownInProgress() ||
                      (status.IsIOError() && !status.IsPathNotFound());
  return passes ? ErrorCode::kUnavailable : ErrorCode::kCorrupt;
}

// The error for a lock of this process contains the text of ENOLCK, too. In other errors ENOLCK
// means that the file system has no locks.
RocksDbLock rocksdb_lock(const rocksdb::Status& status) {
  const std::string text = status.ToString();
  const auto says = [&](std::string_view part) { return text.find(part) != std::string::npos; };
  if (!status.IsIOError()) return RocksDbLock::kNotAtFault;
  if (says("lock hold by current process")) return RocksDbLock::kHeld;
  if (!says("While lock file")) return RocksDbLock::kNotAtFault;
  return says(std::strerror(EAGAIN)) || says(std::strerror(EACCES)) ? RocksDbLock::kHeld
                                                                    : RocksDbLock::kMissing;
}

}  // namespace ckptd
