#include "tests/client/fake_daemon.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <list>

#include "formats/base/fd_message.h"

namespace ckpt::test {

void FakeDaemon::Peer::send_bytes(ByteView bytes, int fd) {
  // Blocking socket and small messages: all of it goes, or the client is gone.
  if (base::send_with_fd(socket_.get(), bytes, fd) != static_cast<ssize_t>(bytes.size())) {
    open_ = false;
  }
}

FakeDaemon::FakeDaemon(std::string path, Options options, Override answer)
    : path_(std::move(path)), options_(options), override_(std::move(answer)) {
  listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  stop_.reset(::eventfd(0, EFD_CLOEXEC));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.c_str(), path_.size());
  EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(listener_.get(), 16), 0);
  thread_ = std::thread([this] { serve(); });
}

FakeDaemon::~FakeDaemon() { stop(); }

void FakeDaemon::stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  EXPECT_EQ(::write(stop_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  thread_.join();
  ::unlink(path_.c_str());
}

std::vector<fb::MessageT> FakeDaemon::wait_for(fb::MessageBody type, size_t count) {
  std::unique_lock lock(mutex_);
  std::vector<fb::MessageT> found;
  // The bound only turns a hang into a failure.
  const bool came = arrived_.wait_for(lock, std::chrono::seconds(60), [&] {
    found.clear();
    for (const fb::MessageT& message : messages_) {
      if (message.body.type == type) found.push_back(message);
    }
    return found.size() >= count;
  });
  EXPECT_TRUE(came) << found.size() << " of " << count << " messages came";
  return found;
}

std::vector<fb::MessageBody> FakeDaemon::types() {
  const std::lock_guard lock(mutex_);
  std::vector<fb::MessageBody> types;
  for (const fb::MessageT& message : messages_) types.push_back(message.body.type);
  return types;
}

void FakeDaemon::serve() {
  std::list<Peer> peers;
  for (;;) {
    std::vector<pollfd> entries{{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const Peer& peer : peers) entries.push_back({peer.socket_.get(), POLLIN, 0});
    if (::poll(entries.data(), entries.size(), -1) < 0) continue;
    if (entries[0].revents != 0) return;
    size_t index = 2;
    for (Peer& peer : peers) {
      if (entries[index++].revents != 0) peer.open_ = serve_peer(peer) && peer.open_;
    }
    if (entries[1].revents != 0) {
      peers.emplace_back().socket_.reset(::accept(listener_.get(), nullptr, nullptr));
    }
    peers.remove_if([](const Peer& peer) { return !peer.open_; });
  }
}

bool FakeDaemon::serve_peer(Peer& peer) {
  std::vector<std::byte> buffer(64 << 10);
  std::vector<base::UniqueFd> fds;
  const ssize_t received = base::receive_with_fds(peer.socket_.get(), buffer, fds).bytes;
  if (received <= 0) return false;
  base::UniqueFd fd = fds.empty() ? base::UniqueFd() : std::move(fds.front());
  peer.reader_.append(ByteView(buffer).first(static_cast<size_t>(received)));
  while (peer.open_) {
    auto message = peer.reader_.next();
    if (!message.ok()) {
      ADD_FAILURE() << message.error().message;
      return false;
    }
    if (!*message) return true;
    {
      const std::lock_guard lock(mutex_);
      messages_.push_back(**message);
    }
    arrived_.notify_all();
    if (override_ && override_(peer, **message)) continue;
    answer(peer, **message, std::exchange(fd, {}));
  }
  return false;
}

void FakeDaemon::welcome(Peer& peer, const fb::HelloT& hello, base::UniqueFd fd) {
  fb::WelcomeT body;
  body.warm_bytes = UINT64_MAX;  // more than there is: nothing says that a daemon is right
  body.protocol_version = options_.protocol_version;
  body.session = 1;
  body.server = "fake";
  const bool control = hello.kind == fb::SessionKind::Control && hello.arena_bytes == 0;
  ArenaLayout layout{options_.slab_bytes, options_.slab_count};
  if (hello.readopt && options_.adopt) {
    layout = {hello.slab_bytes, static_cast<uint32_t>(hello.arena_bytes / hello.slab_bytes)};
    auto mapping = ArenaMapping::map(fd.get(), layout);
    ASSERT_TRUE(mapping.ok()) << mapping.error().message;
    arena_.emplace(std::move(mapping).value());
    arena_fd_ = std::move(fd);
    body.adopted = true;
  } else if (!control) {
    auto created = ArenaMapping::create(layout);
    ASSERT_TRUE(created.ok()) << created.error().message;
    arena_fd_ = std::move(created->fd);
    arena_.emplace(std::move(created->mapping));
  }
  if (!control) {
    body.arena_bytes = layout.arena_bytes();
    body.slab_bytes = layout.slab_bytes;
    body.slab_count = layout.slab_count;
    body.snapshot_slabs = options_.snapshot_slabs;
  }
  const int sent_fd = control || body.adopted ? -1 : arena_fd_.get();
  peer.send_bytes(wire::encode(std::move(body)), sent_fd);
}

void FakeDaemon::answer(Peer& peer, const fb::MessageT& message, base::UniqueFd fd) {
  const auto done = [&peer](uint64_t request) {
    fb::DoneT body;
    body.request = request;
    peer.send(std::move(body));
  };
  const auto lease = [this, &peer](uint64_t request, uint64_t step, uint32_t attempt,
                                   uint32_t count) {
    fb::SlabsLeasedT body;
    body.request = request;
    body.step = step;
    body.attempt = attempt;
    for (uint32_t i = 0; i < count; ++i) {
      body.slabs.push_back(next_slab_++ % arena_->layout().slab_count);
    }
    peer.send(std::move(body));
  };
  switch (message.body.type) {
    case fb::MessageBody::Hello:
      return welcome(peer, *message.body.AsHello(), std::move(fd));
    case fb::MessageBody::RegisterUnits:
      return done(message.body.AsRegisterUnits()->request);
    case fb::MessageBody::JoinGroup: {
      const fb::JoinGroupT& join = *message.body.AsJoinGroup();
      fb::EpochStartedT body;
      body.request = join.request;
      body.epoch = 1;
      body.rank = join.rank;
      body.size = join.size;
      body.lineage = 1;
      return peer.send(std::move(body));
    }
    case fb::MessageBody::RejoinEpoch:
      return done(message.body.AsRejoinEpoch()->request);
    case fb::MessageBody::LeaveGroup:
      return done(message.body.AsLeaveGroup()->request);
    case fb::MessageBody::KvSet:
      return done(message.body.AsKvSet()->request);
    case fb::MessageBody::BeginSnapshot: {
      const fb::BeginSnapshotT& begin = *message.body.AsBeginSnapshot();
      return lease(begin.request, begin.step, begin.attempt, begin.slabs_wanted);
    }
    case fb::MessageBody::LeaseSlabs: {
      const fb::LeaseSlabsT& wanted = *message.body.AsLeaseSlabs();
      return lease(wanted.request, wanted.step, wanted.attempt, wanted.count);
    }
    case fb::MessageBody::CloseRestore:
      return done(message.body.AsCloseRestore()->request);
    default:
      return;  // seals, aborts and releases need no answer
  }
}

}  // namespace ckpt::test
