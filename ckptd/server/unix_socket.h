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

// The file of a unix socket. Whose it is is decided by a lock on PATH.lock, held until this object
// ends: a socket file that a dead daemon left is replaced, one of a living daemon never, and two
// that start together cannot take it from each other. The lock's file stays.
class UnixSocketFile {
 public:
  // Takes the path; nobody can connect yet. Waits up to two seconds for a daemon that is ending.
  // kAlreadyExists if it is another's.
  static ckpt::Result<std::unique_ptr<UnixSocketFile>> bind(const std::string& path);
  ~UnixSocketFile();  // removes the file
  UnixSocketFile(const UnixSocketFile&) = delete;
  UnixSocketFile& operator=(const UnixSocketFile&) = delete;
  // From now on clients can connect. Gives the socket away; once.
  ckpt::Result<ckpt::base::UniqueFd> listen();
  int socket() const { return socket_.get(); }  // until listen()
  // The file at the path is still the one that was made here: clients that connect reach us.
  bool intact() const;
  // For a file that is not: takes the path again, without waiting; listen() follows.
  // kAlreadyExists if another daemon has taken the path meanwhile.
  ckpt::Status renew();
  // Nobody new comes; who is connected stays.
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

// The path that a socket is bound to; empty if there is none.
std::string bound_path(int socket);

// The directory on the way to the socket that keeps this user out by its mode; empty: none does.
// Where a directory lets its group through, the user is taken for one of it.
std::string closed_directory(const std::string& path, uid_t uid);

// The first directory on the way to the socket in which somebody beside root and `own` can replace
// what is there, by its owner or mode (its group's, too); empty: there is none.
std::string replaceable_directory(const std::string& path, uid_t own);

struct Peer {
  uid_t uid = 0;
  pid_t pid = 0;
  ckpt::base::UniqueFd pidfd;  // readable when the process has ended; not valid if there is none
};
// Who connected: SO_PEERCRED, and a handle of the process that cannot be confused with a later
// process of the same number (SO_PEERPIDFD; before Linux 6.5 pidfd_open at once).
ckpt::Result<Peer> peer_of(int socket);

}  // namespace ckptd
