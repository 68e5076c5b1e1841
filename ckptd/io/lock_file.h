// LockFile: the lock that keeps two daemons from using one store, or one socket.
//
// The kernel releases the lock when its holder ends, in any way. The file names the holder ("PID
// HOST") for the error message of a second process; only the lock counts, not the text. The file
// stays, and with it the name of a holder that has ended. So a message names a process of this host
// only if the kernel lists the lock among that process's locks.
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
  // Holds no lock.
  LockFile() = default;

  // Creates the file if needed. Messages begin with `what` ("data directory /data"); if another
  // process holds the lock, `taken` follows ("another ckptd is running on it").
  // While another process holds the lock, `try_again` waits and returns whether to retry; the
  // default does neither.
  // kAlreadyExists: another process holds the lock; the message names it if known. kUnavailable:
  // the file system supports neither flock() nor fcntl() locks.
  static ckpt::Result<LockFile> take(
      const std::string& path, std::string_view what, std::string_view taken,
      const std::function<bool()>& try_again = [] { return false; });
  // For the startup of a daemon: retries for two seconds. A killed daemon keeps its locks until the
  // kernel has freed its memory.
  static std::function<bool()> retry_for_two_seconds();

  // True if the locked file is still the file at `path`, neither removed nor replaced.
  bool is_at(const std::string& path) const;

 private:
  explicit LockFile(ckpt::base::UniqueFd fd) : fd_(std::move(fd)) {}
  ckpt::base::UniqueFd fd_;
};

}  // namespace ckptd
