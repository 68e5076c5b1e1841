#include "ckptd/server/hand_back.h"

#include <spdlog/spdlog.h>
#include <sys/random.h>

#include <asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "ckptd/limits.h"
#include "ckptd/observe/log_limit.h"
#include "ckptd/server/socket_io.h"
#include "ckptd/server/unix_socket.h"
#include "formats/wire/convert.h"
#include "formats/wire/frame.h"

namespace ckptd {

namespace {

namespace fb = ckpt::fb;
using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::base::Hash128;
using ckpt::base::UniqueFd;

ckpt::Result<Hash128> new_ticket() {
  Hash128 ticket;
  if (::getrandom(&ticket, sizeof(ticket), 0) != sizeof(ticket)) {
    return make_error(ErrorCode::kIo, "getrandom: {}", std::strerror(errno));
  }
  return ticket;
}

}  // namespace

// One connection: receives a HandBack, answers it, closes.
class HandBack::Visit : public std::enable_shared_from_this<HandBack::Visit> {
 public:
  Visit(HandBack& owner, Socket socket, ckpt::SessionId id, uid_t uid, Quarantine::Class of)
      : owner_(owner),
        socket_(std::move(socket)),
        deadline_(owner.loop_),
        id_(id),
        uid_(uid),
        of_(of) {}

  void start() {
    asio::error_code ignored;
    socket_.non_blocking(true, ignored);
    read_urgent_data_in_line(socket_.native_handle());
    deadline_.expires_after(limits::kHandBackDeadline);
    deadline_.async_wait([self = shared_from_this()](const asio::error_code& cancelled) {
      if (!cancelled) self->close();
    });
    wait();
  }
  void refuse(const Error& error) {
    const ClientLogScope scope(of_ == Quarantine::kStrangers ? kUsersNotAllowed : uid_);
    spdlog::warn("user {}: an arena was not taken back: {}", uid_, error.message);
    fb::ErrorReplyT reply;
    reply.code = static_cast<int>(error.code);
    reply.message = error.message;
    answer(ckpt::wire::encode(std::move(reply)));
  }
  void close() {
    if (std::exchange(closed_, true)) return;
    const auto self = shared_from_this();
    deadline_.cancel();
    asio::error_code ignored;
    UniqueFd fd(socket_.release(ignored));
    owner_.quarantine_.close_socket(of_, std::move(fd));
    owner_.quarantine_.close(of_, std::move(memory_));
    owner_.ended(id_);
  }

 private:
  void wait() {
    socket_.async_wait(asio::socket_base::wait_read,
                       [self = shared_from_this()](const asio::error_code& error) {
                         if (!error && !self->closed_) self->read();
                       });
  }
  void read() {
    owner_.quarantine_.receive(
        of_, socket_.native_handle(),
        [self = shared_from_this()](ForeignBytes came) { self->arrived(std::move(came)); });
  }
  void arrived(ForeignBytes came) {
    descriptors_ += came.descriptors;
    if (!closed_ && came.memory.valid()) std::swap(memory_, came.memory);
    owner_.quarantine_.close(of_, std::move(came.memory));  // freeing large memory is slow
    if (closed_) return;
    if (came.would_block) return wait();
    if (!came.error.empty() || came.bytes.empty()) return close();
    bytes_ += came.bytes.size();
    if (bytes_ > limits::kHandBackBytesMax) {
      return refuse(make_error(ErrorCode::kInvalidArgument,
                               "a message on this socket has at most {} bytes",
                               limits::kHandBackBytesMax));
    }
    reader_.append(came.bytes);
    auto message = reader_.next();
    if (!message.ok()) return refuse(message.error());
    if (!message->has_value()) return wait();
    if ((*message)->body.AsHandBack() == nullptr) {
      return refuse(make_error(ErrorCode::kInvalidArgument,
                               "this socket takes arenas back and nothing else"));
    }
    take();
  }
  void take() {
    if (descriptors_ != 1 || !memory_.valid()) {
      return refuse(make_error(
          ErrorCode::kInvalidArgument,
          "an arena comes back as one descriptor of sealed memory; {} came, {}sealed memory",
          descriptors_, memory_.valid() ? "with " : "none of it "));
    }
    const auto ticket = owner_.keep(uid_, of_, memory_);
    if (!ticket.ok()) return refuse(ticket.error());
    fb::HandedBackT reply;
    reply.ticket = ckpt::wire::to_fb(*ticket);
    answer(ckpt::wire::encode(std::move(reply)));
  }
  // One small frame into an empty buffer: either it fits, or the client is gone.
  void answer(const std::vector<std::byte>& frame) {
    (void)send(socket_.native_handle(), frame, -1);
    close();
  }

  HandBack& owner_;
  Socket socket_;
  asio::steady_timer deadline_;
  const ckpt::SessionId id_;
  const uid_t uid_;
  const Quarantine::Class of_;
  ckpt::wire::FrameReader reader_;
  size_t bytes_ = 0;
  size_t descriptors_ = 0;
  UniqueFd memory_;
  bool closed_ = false;
};

HandBack::HandBack(asio::io_context& loop, Quarantine& quarantine, Admission admission)
    : loop_(loop), quarantine_(quarantine), admission_(std::move(admission)) {}

HandBack::~HandBack() { close(); }

void HandBack::serve(Socket socket) {
  const auto peer = peer_of(socket.native_handle());
  const uid_t uid = peer.ok() ? peer->uid : 0;
  const Quarantine::Class of =
      peer.ok() && admission_.may_connect(uid) ? uid : Quarantine::kStrangers;
  const ckpt::SessionId id = next_visit_++;
  const auto visit = std::make_shared<Visit>(*this, std::move(socket), id, uid, of);
  visits_.emplace(id, visit);
  if (!peer.ok()) return visit->close();
  if (quarantine_.overloaded(of)) {
    return visit->refuse(make_error(ErrorCode::kResourceExhausted,
                                    "descriptors of user {} are still being closed", uid));
  }
  const ckpt::Status admitted = admission_.admit(id, uid);
  if (!admitted.ok()) return visit->refuse(admitted.error());
  visit->start();
}

UniqueFd HandBack::take(const Hash128& ticket, uid_t uid) {
  const auto found = arenas_.find(ticket);
  if (found == arenas_.end() || found->second.uid != uid) return {};
  UniqueFd memory = std::move(found->second.memory);
  arenas_.erase(found);
  return memory;
}

// Freeing large memory is slow, so Quarantine does it.
void HandBack::tick(Clock::time_point now) {
  for (auto arena = arenas_.begin(); arena != arenas_.end();) {
    if (now - arena->second.brought < limits::kHandBackTicketLife) {
      ++arena;
      continue;
    }
    quarantine_.close(arena->second.of, std::move(arena->second.memory));
    arena = arenas_.erase(arena);
  }
}

void HandBack::close() {
  const auto open = std::exchange(visits_, {});
  for (const auto& [id, visit] : open) visit->close();
  for (auto& [ticket, arena] : arenas_) quarantine_.close(arena.of, std::move(arena.memory));
  arenas_.clear();
}

ckpt::Result<Hash128> HandBack::keep(uid_t uid, Quarantine::Class of, UniqueFd& memory) {
  size_t of_user = 0;
  for (const auto& [ticket, arena] : arenas_) of_user += arena.uid == uid ? 1 : 0;
  if (of_user >= limits::kSessionsPerUserMax || arenas_.size() >= limits::kSessionsMax) {
    return make_error(ErrorCode::kResourceExhausted, "{} arenas wait for their trainers already",
                      arenas_.size());
  }
  CKPT_ASSIGN(const Hash128 ticket, new_ticket());
  arenas_.emplace(
      ticket, Arena{.uid = uid, .of = of, .memory = std::move(memory), .brought = Clock::now()});
  return ticket;
}

void HandBack::ended(ckpt::SessionId visit) {
  admission_.ended(visit);
  visits_.erase(visit);
}

}  // namespace ckptd
