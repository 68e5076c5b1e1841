// KnownStore: the store that a session uses. A path is no identity: ckptd may come back on another
// folder, for example before its disk is mounted. Nothing that the session knows is there, so it
// waits for its own store as for a ckptd that is away.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "formats/base/hash.h"
#include "formats/base/result.h"

namespace ckpt::lib {

class KnownStore {
 public:
  // The first store is remembered. kUnavailable: this is another one, which is also said on stderr,
  // once: trainers only see that ckptd is away. A zero id is of a daemon that does not tell.
  Status check(const base::Hash128& store, const std::string& socket) {
    if (store == base::Hash128{}) return {};
    if (!known_) known_ = store;
    if (*known_ == store) return {};
    Error error =
        make_error(ErrorCode::kUnavailable,
                   "socket {}: ckptd has come back with another store ({}) than this process "
                   "uses ({}), and nothing of its run is there; restart ckptd with --data on the "
                   "old store, or end this process and start anew",
                   socket, base::to_hex(store), base::to_hex(*known_));
    if (std::exchange(told_, store) != store) {
      std::fprintf(stderr, "libckpt: warning: %s\n", error.message.c_str());
    }
    return error;
  }

 private:
  std::optional<base::Hash128> known_;
  std::optional<base::Hash128> told_;  // the other store
};

}  // namespace ckpt::lib
