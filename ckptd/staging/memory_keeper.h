// MemoryKeeper: who holds memory while the daemon restarts. Under systemd that is its store of file
// descriptors; without one nobody does, and trainers bring their arenas back themselves.
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
  // What it was given by the daemon before this one, each once. What comes back is believed by
  // nobody: names and contents may be anything.
  virtual std::vector<Kept> take() = 0;
  // Holds on to a duplicate of `fd` until it is told to forget the name. It may fail to, silently:
  // then the memory lives as long as this process and its clients do.
  virtual void keep(const std::string& name, int fd) = 0;
  virtual void forget(const std::string& name) = 0;
};

}  // namespace ckptd
