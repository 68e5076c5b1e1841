// Unix sockets beyond what Asio has: socket files, credentials of peers, process handles.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "ckptd/io/lock_file.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

// The file of a unix socket. A lock on PATH.lock, held until this object ends, decides who owns the
// file. A dead daemon's socket file is replaced, a living daemon's never. Two daemons that start
// together cannot take it from each other. The lock's file stays.
class UnixSocketFile {
 public:
  // Takes the path; no client can connect yet. Waits up to two seconds for a daemon that is ending.
  // kAlreadyExists if another daemon owns the path.
  static ckpt::Result<std::unique_ptr<UnixSocketFile>> bind(const std::string& path);
  ~UnixSocketFile();  // removes the file
  UnixSocketFile(const UnixSocketFile&) = delete;
  UnixSocketFile& operator=(const UnixSocketFile&) = delete;
  // From now on clients can connect. Passes the socket to the caller; once.
  ckpt::Result<ckpt::base::UniqueFd> listen();
  int socket() const { return socket_.get(); }  // until listen()
  // True if the file at the path is still the one created here, so that clients reach this daemon.
  bool intact() const;
  // For a file that is not intact: takes the path again, without waiting; listen() follows.
  // kAlreadyExists if another daemon has taken the path meanwhile.
  ckpt::Status renew();
  // Removes the file: no new connections; existing ones stay.
  void remove();

 private:
  explicit UnixSocketFile(std::string path) : path_(std::move(path)) {}
  ckpt::Status make(const std::function<bool()>& try_lock_again);
  ckpt::Status open_to_all();

  const std::string path_;
  LockFile lock_;
  ckpt::base::UniqueFd socket_;
  bool bound_ = false;
  dev_t device_ = 0;  // of the file, while bound
  ino_t inode_ = 0;
};

// The path that a socket is bound to; empty: none.
std::string bound_path(int socket);

// The first directory on the path whose mode keeps this user out; empty: none. If a directory
// admits its group, the user is assumed to be a member.
std::string closed_directory(const std::string& path, uid_t uid);

// The first directory on the path in which a user other than root and `own` can replace entries, by
// its owner or mode (its group's, too); empty: none.
std::string replaceable_directory(const std::string& path, uid_t own);

struct Peer {
  uid_t uid = 0;
  pid_t pid = 0;
  ckpt::base::UniqueFd pidfd;  // readable when the process has ended; may be invalid
};
// The peer of a connection: SO_PEERCRED, and a handle of the process that cannot be confused with a
// later process of the same number (SO_PEERPIDFD; before Linux 6.5 pidfd_open at once).
ckpt::Result<Peer> peer_of(int socket);

}  // namespace ckptd
