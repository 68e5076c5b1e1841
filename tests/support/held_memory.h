// A keeper of memory for tests of the daemon's core: what a service manager's store is to ckptd.
#pragma once

#include <fcntl.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ckptd/staging/memory_keeper.h"

namespace ckptd::testing {

class HeldMemory final : public MemoryKeeper {
 public:
  std::vector<Kept> take() override {
    std::vector<Kept> taken;
    for (const auto& [name, fd] : held) taken.push_back({name, duplicate(fd.get())});
    return taken;
  }
  void keep(const std::string& name, int fd) override { held[name] = duplicate(fd); }
  void forget(const std::string& name) override { held.erase(name); }

  std::map<std::string, ckpt::base::UniqueFd> held;

 private:
  static ckpt::base::UniqueFd duplicate(int fd) {
    return ckpt::base::UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  }
};

}  // namespace ckptd::testing
