#include "ckptd/server/quarantine.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "ckptd/limits.h"
#include "ckptd/server/socket_io.h"
#include "formats/base/open_files.h"

namespace ckptd {

namespace {

using ckpt::base::UniqueFd;

// Half of the process's descriptor limit. The threads' table has the same limit as the daemon's.
// Without CAP_SYS_RESOURCE the same limit also holds for the user's descriptors in flight.
size_t half_of_open_files() {
  const auto files = ckpt::base::open_files_limit();
  if (!files) return limits::kQuarantineJobsMax;
  return std::max<size_t>(files->rlim_cur / 2, limits::kQuarantineClassesAtOnce);
}

std::string name_of(Quarantine::Class of) {
  return of == Quarantine::kStrangers ? "users who may not connect" : fmt::format("user {}", of);
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
    : channel_(loop, channel.release()),
      threads_(std::move(threads)),
      jobs_max_(std::min(limits::kQuarantineJobsMax, half_of_open_files())),
      parked_max_(half_of_open_files()) {
  wait_for_replies();
}

Quarantine::~Quarantine() {
  asio::error_code ignored;
  channel_.close(ignored);
  // Not to be closed here; the end of the process closes them.
  for (Unsent& unsent : unsent_) (void)unsent.fd.release();
  for (Unsent& unsent : refused_) (void)unsent.fd.release();
  for (auto& [of, held] : classes_) held.parked.abandon();
  (void)threads_->wait_until_ended(limits::kQuarantinePatience);
}

void Quarantine::receive(Class of, int socket, Done done) {
  if (jobs_of(of) >= jobs_max_ / limits::kQuarantineClassesAtOnce) {
    return done({.error = fmt::format("{} descriptors of {} are still being closed", jobs_of(of),
                                      name_of(of))});
  }
  UniqueFd copy(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return done({.error = fmt::format("dup: {}", std::strerror(errno))});
  submit(of, Kind::kBringToReceive, std::move(copy), std::move(done));
}

void Quarantine::close(Class of, UniqueFd fd) {
  if (!fd.valid()) return;
  const bool in_share = jobs_of(of) < jobs_max_ / limits::kQuarantineClassesAtOnce;
  // A descriptor that cannot be parked takes a place beyond the share, and counts for full().
  if (in_share || !park(of, fd)) submit(of, Kind::kBringToClose, std::move(fd), {});
}

bool Quarantine::park(Class of, UniqueFd& fd) {
  if (parked_ >= parked_max_ || !classes_[of].parked.park(fd)) return false;
  ++parked_;
  ++held_;
  return true;
}

// Takes the place of a finished job.
void Quarantine::close_parked(Class of) {
  ParkedDescriptors::Lot lot = classes_.at(of).parked.take();
  parked_ -= lot.descriptors;
  held_ -= lot.descriptors;
  submit(of, Kind::kBringToClose, std::move(lot.fd), {}, lot.descriptors);
}

void Quarantine::close_socket(Class of, UniqueFd socket) {
  if (socket.valid() && !end_reading(socket.get())) close(of, std::move(socket));
}

bool Quarantine::overloaded(Class of) const {
  const auto found = classes_.find(of);
  if (found == classes_.end()) return false;
  const auto& since = found->second.since;
  return since.size() >= limits::kQuarantineJobsPerUser &&
         Clock::now() - since.begin()->second >= limits::kQuarantineStuckAfter;
}

bool Quarantine::full() const {
  const size_t share = jobs_max_ / limits::kQuarantineClassesAtOnce;
  return jobs_.size() - std::min(jobs_of(kStrangers), share) >= jobs_max_;
}

std::string Quarantine::fault() const {
  if (!full()) return {};
  const auto most =
      std::max_element(classes_.begin(), classes_.end(), [](const auto& one, const auto& other) {
        return one.second.since.size() < other.second.since.size();
      });
  return fmt::format(
      "{} descriptors that clients passed are held, as their close does not return; most are of "
      "{}: end the peers or mounts that they belong to",
      held_, name_of(most->first));
}

size_t Quarantine::held_of(Class of) const {
  const auto found = classes_.find(of);
  if (found == classes_.end()) return 0;
  size_t held = found->second.parked.size();
  for (const auto& [id, since] : found->second.since) held += jobs_.at(id).descriptors;
  return held;
}

size_t Quarantine::jobs_of(Class of) const {
  const auto found = classes_.find(of);
  return found == classes_.end() ? 0 : found->second.since.size();
}

void Quarantine::submit(Class of, Kind kind, UniqueFd fd, Done done, size_t descriptors) {
  const uint64_t id = next_++;
  jobs_.emplace(id, Job{.of = of, .done = std::move(done), .descriptors = descriptors});
  classes_[of].since.emplace(id, Clock::now());
  held_ += descriptors;
  unsent_.push_back({{.id = id, .uid = of, .kind = kind}, std::move(fd)});
  unsent_.push_back({{.id = id, .uid = of, .kind = Kind::kBegin}, {}});
  send_unsent();
}

void Quarantine::tick() {
  for (Unsent& unsent : std::exchange(refused_, {})) unsent_.push_back(std::move(unsent));
  send_unsent();
}

void Quarantine::send_unsent() {
  while (!unsent_.empty()) {
    const Unsent& next = unsent_.front();
    const ckpt::ByteView bytes(reinterpret_cast<const std::byte*>(&next.request),
                               sizeof(next.request));
    const auto sent = send(channel_.native_handle(), bytes, next.fd.get());
    if (sent.ok() && !sent->has_value()) return;
    if (!sent.ok()) {
      // Either the threads have ended, or the kernel refuses this descriptor, which must not delay
      // others: too many are in flight, or, before Linux 6.10, too many sockets are nested in it.
      if (!next.fd.valid()) return;
      for (int i = 0; i < 2; ++i) {  // with its kBegin
        refused_.push_back(std::move(unsent_.front()));
        unsent_.pop_front();
      }
      continue;
    }
    // Closes the loop's copy. The threads or the channel have another copy, until kBegin is sent.
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
    const Class of = job->second.of;
    const auto held = classes_.find(of);
    held_ -= job->second.descriptors;
    jobs_.erase(job);
    held->second.since.erase(reply.id);
    if (!held->second.parked.empty()) {
      close_parked(of);
    } else if (held->second.since.empty()) {
      classes_.erase(held);
    }
  }
  if (!done) return;
  ForeignBytes received = threads_->take_received(reply.id);
  received.memory = std::move(memory);
  done(std::move(received));
}

}  // namespace ckptd
