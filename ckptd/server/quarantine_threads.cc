#include "ckptd/server/quarantine_threads.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "ckptd/limits.h"
#include "ckptd/server/socket_io.h"
#include "formats/arena.h"

namespace ckptd {

namespace {

using ckpt::base::UniqueFd;

// Interval for retrying a job that no thread could be started for.
constexpr int kRetryMs = 1'000;

// Closes the descriptors from `first` to `last` of the calling thread's table.
void close_all(unsigned first, unsigned last) {
  if (first > last || ::syscall(SYS_close_range, first, last, 0) == 0) return;
  // Before Linux 5.9.
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  const auto end = static_cast<unsigned>(std::min<rlim_t>(files.rlim_cur, 1u << 20));
  for (unsigned fd = first; fd <= std::min(last, end); ++fd) ::close(static_cast<int>(fd));
}

// Blocks signals in the calling thread, and in the threads that it starts. A handler writes to a
// pipe of the daemon's table. Here that number is closed, or another file: the signal would be
// lost. Faults of the thread itself stay unblocked.
void block_signals() {
  sigset_t blocked;
  ::sigfillset(&blocked);
  for (const int fault : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP}) {
    ::sigdelset(&blocked, fault);
  }
  ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
}

void wait_for(int fd, short events, int timeout_ms) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  (void)::poll(&entry, 1, timeout_ms);
}

}  // namespace

ckpt::Result<std::shared_ptr<QuarantineThreads>> QuarantineThreads::start(UniqueFd channel) {
  std::shared_ptr<QuarantineThreads> threads(new QuarantineThreads());
  std::unique_lock lock(threads->mutex_);
  threads->channel_ = channel.get();
  threads->start_thread(&QuarantineThreads::read_requests);
  if (threads->threads_ == 0) {
    return ckpt::make_error(ckpt::ErrorCode::kResourceExhausted,
                            "cannot start a thread that closes what clients send");
  }
  threads->changed_.wait(lock, [&] { return threads->table_ != Table::kUnknown; });
  if (threads->table_ == Table::kShared) (void)channel.release();
  return threads;
}

ForeignBytes QuarantineThreads::take_received(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = received_.find(id);
  if (found == received_.end()) return {};
  ForeignBytes received = std::move(found->second);
  received_.erase(found);
  return received;
}

bool QuarantineThreads::wait_until_ended(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience, [this] { return threads_ == 0; });
}

// With the lock held. If a thread cannot be started, the caller notices by threads_.
void QuarantineThreads::start_thread(void (QuarantineThreads::*body)()) {
  try {
    std::thread([self = shared_from_this(), body] {
      (self.get()->*body)();
      const std::lock_guard lock(self->mutex_);
      --self->threads_;
      self->changed_.notify_all();
    }).detach();
    ++threads_;
  } catch (const std::exception& error) {  // no thread (system_error) or no memory (bad_alloc)
    // Jobs wait, and read_requests() tries again.
    spdlog::debug("quarantine: no thread can be started now: {}", error.what());
  }
}

// Closes the daemon's descriptors in the copy, because a stuck thread would keep them open. 0 to 2
// stay taken, so that no foreign descriptor gets the number of stderr.
void QuarantineThreads::take_own_table() {
  const bool own = ::unshare(CLONE_FILES) == 0;
  if (own) {
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd <= STDERR_FILENO && null >= 0; ++fd) ::dup2(null, fd);
    const auto kept = static_cast<unsigned>(channel_);
    close_all(STDERR_FILENO + 1, kept - 1);
    close_all(kept + 1, UINT32_MAX);
  } else {
    // Docker's default seccomp profile refuses this call, for example.
    spdlog::info(
        "unshare(CLONE_FILES): {}; a client that stalls a close may keep this store locked",
        std::strerror(errno));
  }
  const std::lock_guard lock(mutex_);
  table_ = own ? Table::kOwn : Table::kShared;
  changed_.notify_all();
}

void QuarantineThreads::read_requests() {
  block_signals();  // before its table differs from the daemon's
  take_own_table();
  arrived_.reserve(2);
  for (bool open = true; open;) {
    Request request;
    try {
      open = read_request(request);
    } catch (const std::bad_alloc&) {
      drop_request(request);
    }
  }
  const std::lock_guard lock(mutex_);
  ending_ = true;
  changed_.notify_all();
  // channel_ stays open: a stuck thread must not reply to another file that gets its number.
}

// False: the daemon has closed its end.
bool QuarantineThreads::read_request(Request& request) {
  const auto waiting = [this] {
    const std::lock_guard lock(mutex_);
    return std::any_of(queues_.begin(), queues_.end(),
                       [](const auto& queue) { return !queue.second.waiting.empty(); });
  };
  wait_for(channel_, POLLIN, waiting() ? kRetryMs : -1);
  const auto received = receive_with_fds(
      channel_, {reinterpret_cast<std::byte*>(&request), sizeof(request)}, arrived_);
  if (!received.ok()) return false;
  if (received->would_block) {
    const std::lock_guard lock(mutex_);
    wake_a_thread();
    return true;
  }
  if (received->bytes != sizeof(request)) return false;
  take_request(request);
  return true;
}

// Out of memory for this request. Its descriptor stays in the table, because this thread must not
// close it. kBegin of a request that was not brought is answered at once.
void QuarantineThreads::drop_request(const Request& request) {
  for (UniqueFd& fd : arrived_) (void)fd.release();
  arrived_.clear();
  if (request.kind != Kind::kBegin || request.id == 0) return;
  brought_.erase(request.id);
  reply({.id = request.id, .done = true}, -1);
}

void QuarantineThreads::take_request(const Request& request) {
  if (request.kind != Kind::kBegin) {
    // Without a descriptor the table is full, which the limit on jobs prevents.
    if (arrived_.empty()) return;
    Job& job = brought_.emplace(request.id, Job{request, -1}).first->second;
    job.fd = arrived_.front().release();
    arrived_.clear();
    return;
  }
  const auto brought = brought_.find(request.id);
  if (brought == brought_.end()) return reply({.id = request.id, .done = true}, -1);
  const std::lock_guard lock(mutex_);
  queues_[brought->second.request.uid].waiting.push_back(brought->second);
  brought_.erase(brought);
  wake_a_thread();
}

// With the lock held.
void QuarantineThreads::wake_a_thread() {
  if (idle_ > 0) {
    --idle_;
    ++wakeups_;
    changed_.notify_all();
  } else if (threads_ <= limits::kQuarantineThreadsMax) {
    start_thread(&QuarantineThreads::work);
  }
}

void QuarantineThreads::work() {
  while (const auto job = next_job()) {
    serve(*job);
    const std::lock_guard lock(mutex_);
    const auto queue = queues_.find(job->request.uid);
    if (--queue->second.threads == 0 && queue->second.waiting.empty()) queues_.erase(queue);
  }
}

// Waits for a job. The classes take turns.
std::optional<QuarantineThreads::Job> QuarantineThreads::next_job() {
  std::unique_lock lock(mutex_);
  while (true) {
    auto at = queues_.upper_bound(last_served_);
    for (size_t tried = 0; tried < queues_.size(); ++tried, ++at) {
      if (at == queues_.end()) at = queues_.begin();
      Queue& queue = at->second;
      if (queue.waiting.empty() || queue.threads >= limits::kQuarantineThreadsPerUser) continue;
      Job job = queue.waiting.front();
      queue.waiting.pop_front();
      ++queue.threads;
      last_served_ = at->first;
      return job;
    }
    if (ending_) return std::nullopt;
    ++idle_;
    changed_.wait(lock, [this] { return wakeups_ > 0 || ending_; });
    wakeups_ > 0 ? --wakeups_ : --idle_;
  }
}

// Any call in here that receives or closes may block without a bound.
void QuarantineThreads::serve(const Job& job) {
  try {
    if (job.request.kind == Kind::kBringToReceive) receive_for(job);
  } catch (const std::bad_alloc&) {
    // A failed receive returns an empty answer, as at the end of the stream.
    reply({.id = job.request.id, .done = false}, -1);
  }
  ::close(job.fd);
  reply({.id = job.request.id, .done = true}, -1);
}

void QuarantineThreads::receive_for(const Job& job) {
  std::vector<UniqueFd> fds;
  ForeignBytes received = receive_from(job.fd, fds);
  const bool memory = fds.size() == 1 && ckpt::check_arena_seals(fds.front().get()).ok();
  {
    const std::lock_guard lock(mutex_);
    received_.emplace(job.request.id, std::move(received));
  }
  reply({.id = job.request.id, .done = false}, memory ? fds.front().get() : -1);
}

ForeignBytes QuarantineThreads::receive_from(OwnFd socket, std::vector<UniqueFd>& fds) const {
  ForeignBytes out;
  out.bytes.resize(limits::kReadBytesPerTurn);
  const auto received = receive_with_fds(socket, out.bytes, fds);
  out.bytes.resize(received.ok() ? received->bytes : 0);
  out.bytes.shrink_to_fit();
  out.descriptors = fds.size();
  if (!received.ok()) {
    out.error = received.error().message;
  } else {
    out.would_block = received->would_block;
  }
  return out;
}

// Waits for room in the channel. Sends nothing once the daemon has closed its end.
void QuarantineThreads::reply(const Reply& reply, OwnFd memory) const noexcept try {
  const ckpt::ByteView bytes(reinterpret_cast<const std::byte*>(&reply), sizeof(reply));
  while (true) {
    const auto sent = send(channel_, bytes, memory);
    if (!sent.ok() || sent->has_value()) return;
    wait_for(channel_, POLLOUT, -1);
  }
} catch (const std::bad_alloc&) {
  return;  // no memory for the error text, which would say that the daemon's end is closed
}

}  // namespace ckptd
