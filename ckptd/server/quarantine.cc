#include "ckptd/server/quarantine.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "ckptd/limits.h"
#include "ckptd/server/socket_io.h"

namespace ckptd {

namespace {

using ckpt::base::UniqueFd;

// Half of what a process may have open: the threads' table has the same limit as the daemon's.
size_t most_jobs() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return limits::kQuarantineJobsMax;
  return static_cast<size_t>(
      std::min<rlim_t>(limits::kQuarantineJobsMax, std::max<rlim_t>(files.rlim_cur / 2, 1)));
}

}  // namespace

ckpt::Result<std::unique_ptr<Quarantine>> Quarantine::start(asio::io_context& loop) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return ckpt::make_error(ckpt::ErrorCode::kIo, "socketpair: {}", std::strerror(errno));
  }
  UniqueFd own(ends[0]);
  CKPT_ASSIGN(auto threads, QuarantineThreads::start(UniqueFd(ends[1])));
  return std::unique_ptr<Quarantine>(new Quarantine(loop, std::move(own), std::move(threads)));
}

Quarantine::Quarantine(asio::io_context& loop, UniqueFd channel,
                       std::shared_ptr<QuarantineThreads> threads)
    : channel_(loop, channel.release()), threads_(std::move(threads)), jobs_max_(most_jobs()) {
  wait_for_replies();
}

Quarantine::~Quarantine() {
  asio::error_code ignored;
  channel_.close(ignored);
  // Not to be closed here; they end with the process.
  for (Unsent& unsent : unsent_) (void)unsent.fd.release();
  (void)threads_->wait_until_ended(limits::kQuarantinePatience);
}

void Quarantine::receive(Class of, int socket, Done done) {
  UniqueFd copy(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return done({.error = fmt::format("dup: {}", std::strerror(errno))});
  submit(of, Kind::kBringToReceive, std::move(copy), std::move(done));
}

void Quarantine::close(Class of, UniqueFd fd) {
  if (fd.valid()) submit(of, Kind::kBringToClose, std::move(fd), {});
}

void Quarantine::close_socket(Class of, UniqueFd socket) {
  if (socket.valid() && !end_reading(socket.get())) close(of, std::move(socket));
}

bool Quarantine::overloaded(Class of) const {
  const auto found = since_.find(of);
  return found != since_.end() && found->second.size() >= limits::kQuarantineJobsPerUser &&
         Clock::now() - found->second.begin()->second >= limits::kQuarantineStuckAfter;
}

void Quarantine::submit(Class of, Kind kind, UniqueFd fd, Done done) {
  const uint64_t id = next_++;
  jobs_.emplace(id, Job{.of = of, .done = std::move(done)});
  since_[of].emplace(id, Clock::now());
  unsent_.push_back({{.id = id, .uid = of, .kind = kind}, std::move(fd)});
  unsent_.push_back({{.id = id, .uid = of, .kind = Kind::kBegin}, {}});
  send_unsent();
}

bool Quarantine::send_request(const QuarantineThreads::Request& request, int fd) {
  const ckpt::ByteView bytes(reinterpret_cast<const std::byte*>(&request), sizeof(request));
  const auto sent = send(channel_.native_handle(), bytes, fd);
  return sent.ok() && sent->has_value();
}

void Quarantine::send_unsent() {
  while (!unsent_.empty() && send_request(unsent_.front().request, unsent_.front().fd.get())) {
    // Closes our copy. The threads have another one, or the channel has, until kBegin is sent.
    unsent_.pop_front();
  }
}

void Quarantine::wait_for_replies() {
  channel_.async_wait(asio::posix::stream_descriptor::wait_read,
                      [this](const asio::error_code& error) {
                        if (error) return;
                        while (take_reply()) {
                        }
                        send_unsent();
                        wait_for_replies();
                      });
}

bool Quarantine::take_reply() {
  QuarantineThreads::Reply reply;
  std::vector<UniqueFd> fds;
  const auto received = receive_with_fds(
      channel_.native_handle(), {reinterpret_cast<std::byte*>(&reply), sizeof(reply)}, fds);
  if (!received.ok() || received->bytes != sizeof(reply)) return false;
  replied(reply, fds.empty() ? UniqueFd() : std::move(fds.front()));
  return true;
}

void Quarantine::replied(const QuarantineThreads::Reply& reply, UniqueFd memory) {
  const auto job = jobs_.find(reply.id);
  if (job == jobs_.end()) return;
  const Done done = std::exchange(job->second.done, {});
  if (reply.done) {
    const auto since = since_.find(job->second.of);
    since->second.erase(reply.id);
    if (since->second.empty()) since_.erase(since);
    jobs_.erase(job);
  }
  if (!done) return;
  ForeignBytes received = threads_->take_received(reply.id);
  received.memory = std::move(memory);
  done(std::move(received));
}

}  // namespace ckptd
