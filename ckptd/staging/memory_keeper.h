// MemoryKeeper: holds memory while the daemon restarts. Under systemd this is its file descriptor
// store; otherwise there is no keeper, and trainers hand their arenas back themselves.
#pragma once

#include <string>
#include <vector>

#include "formats/base/unique_fd.h"

namespace ckptd {

class MemoryKeeper {
 public:
  struct Kept {
    std::string name;
    ckpt::base::UniqueFd fd;
  };
  virtual ~MemoryKeeper() = default;
  // Descriptors that the previous daemon left, each once. Names and contents are untrusted: they
  // may be anything.
  virtual std::vector<Kept> take() = 0;
  // Keeps a duplicate of `fd` until forget(). May fail silently: the memory then lives only as long
  // as this process and its clients.
  virtual void keep(const std::string& name, int fd) = 0;
  virtual void forget(const std::string& name) = 0;
};

}  // namespace ckptd
