// FakeDaemon: prepared answers on a real unix socket, in a thread of its own. It follows the
// protocol just far enough. A test overrides single answers; every message is recorded.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "formats/arena.h"
#include "formats/base/unique_fd.h"
#include "formats/wire/frame.h"

namespace ckpt::test {

class FakeDaemon {
 public:
  struct Options {
    uint64_t slab_bytes = 256 << 10;
    uint32_t slab_count = 8;
    uint32_t snapshot_slabs = 0;  // 0: as an older daemon, which does not say
    bool adopt = true;            // takes arenas that clients hand back
    uint32_t protocol_version = wire::kProtocolVersion;
  };
  // One connection, as overrides see it.
  class Peer {
   public:
    template <typename Body>
    void send(Body body) {
      send_bytes(wire::encode(std::move(body)));
    }
    void send_bytes(ByteView bytes, int fd = -1);
    void hang_up() { open_ = false; }

   private:
    friend class FakeDaemon;
    base::UniqueFd socket_;
    wire::FrameReader reader_;
    bool open_ = true;
  };
  // Called before the usual answer. True: the message is answered, and no usual answer follows.
  // Runs in the daemon's thread.
  using Override = std::function<bool(Peer& peer, const fb::MessageT& message)>;

  FakeDaemon(std::string path, Options options, Override answer = {});
  ~FakeDaemon();  // stops
  // Hangs up, ends the thread, and leaves nothing at the path. Overrides that reach their daemon
  // through a unique_ptr need this before its reset(), which changes the pointer first.
  void stop();

  // All messages so far, over all connections; waits until there are `count` of this type.
  std::vector<fb::MessageT> wait_for(fb::MessageBody type, size_t count);
  std::vector<fb::MessageBody> types();

  // A slab of the arena that the daemon made, or that was handed to it.
  MutableByteView slab(uint32_t slab) { return arena_->slab(slab); }

 private:
  void serve();
  bool serve_peer(Peer& peer);
  void answer(Peer& peer, const fb::MessageT& message, base::UniqueFd fd);
  void welcome(Peer& peer, const fb::HelloT& hello, base::UniqueFd fd);

  std::string path_;
  Options options_;
  Override override_;
  base::UniqueFd listener_;
  base::UniqueFd stop_;
  base::UniqueFd arena_fd_;
  std::optional<ArenaMapping> arena_;
  uint32_t next_slab_ = 0;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<fb::MessageT> messages_;
  std::thread thread_;
};

}  // namespace ckpt::test
