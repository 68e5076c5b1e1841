// LockFile: the lock that keeps two daemons off one store, and off one socket.
//
// The kernel releases the lock when its holder ends, however it ends. The file names the holder
// ("PID HOST"), for the message to whoever comes second; the lock is what counts, not the text. The
// file stays.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

// The remedy for a lock file that user `self` may not open, to be added to a message.
std::string refused_file_remedy(uid_t owner, uid_t self);

class LockFile {
 public:
  // Holds nothing.
  LockFile() = default;

  // Creates the file if need be. Messages begin with `what` ("data directory /data"); where another
  // process holds the lock, `taken` follows ("another ckptd is running on it").
  // While another process holds the lock, `try_again` waits and says whether to try again; the
  // default does neither.
  // kAlreadyExists: another process holds it, named as far as it is known. kUnavailable: the file
  // system has no locks, by flock() or by fcntl().
  static ckpt::Result<LockFile> take(
      const std::string& path, std::string_view what, std::string_view taken,
      const std::function<bool()>& try_again = [] { return false; });
  // For the start of a daemon, which may wait: tries for two seconds. A daemon that was killed
  // keeps its locks until the kernel has freed its memory.
  static std::function<bool()> for_two_seconds();

  // The file that is locked is the one at `path`: nobody has removed it, or put another there.
  bool is_at(const std::string& path) const;

 private:
  explicit LockFile(ckpt::base::UniqueFd fd) : fd_(std::move(fd)) {}
  ckpt::base::UniqueFd fd_;
};

}  // namespace ckptd
