// Communicator of processes over TCP: Gloo's full mesh of connections and its unbound buffers.
//
// Gloo's own collectives are not used: they ignore an aborted wait, and the order in which they add
// depends on the algorithm and on how a buffer is cut (comm_pairwise.h says what we promise).
#include <gloo/context.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <signal.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <map>

#include "trainer/parallel/comm_pairwise.h"

namespace moetrain {

using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

using Clock = std::chrono::steady_clock;

// Gloo's key-value store over the callbacks. Gloo speaks exceptions; the error behind one is kept.
class RendezvousStore final : public gloo::rendezvous::Store {
 public:
  explicit RendezvousStore(const Rendezvous& rendezvous) : rendezvous_(rendezvous) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    Status status = rendezvous_.set(key, data);
    if (!status.ok()) fail(status.error());
  }
  std::vector<char> get(const std::string& key) override {
    const auto known = values_.find(key);
    if (known != values_.end()) return known->second;
    Result<std::vector<char>> value = rendezvous_.get(key);
    if (!value.ok()) fail(value.error());
    return values_.emplace(key, std::move(value).value()).first->second;
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);  // the callback's own bound holds
  }

  const std::optional<Error>& error() const { return error_; }

 private:
  [[noreturn]] void fail(const Error& error) {
    error_ = error;
    throw std::runtime_error(error.message);
  }
  const Rendezvous& rendezvous_;
  std::map<std::string, std::vector<char>> values_;
  std::optional<Error> error_;
};

class GlooComm final : public PairwiseComm {
 public:
  // `context` is null for a group of one, which needs no connections.
  GlooComm(const GlooOptions& options, std::shared_ptr<gloo::Context> context)
      : PairwiseComm(options.rank, options.size),
        timeout_(options.timeout_ms),
        context_(std::move(context)) {}
  ~GlooComm() override { close_connections(); }

 protected:
  Status exchange(const Exchange& exchange) override {
    if (exchange.sends.empty() && exchange.recvs.empty()) return {};
    const auto deadline = Clock::now() + timeout_;
    try {
      return transfer(exchange, deadline);
    } catch (const std::exception& error) {
      // Gloo reports a time-out and a lost connection by the same type.
      if (Clock::now() >= deadline) {
        return make_error(ErrorCode::kDeadlineExceeded, "a peer did not take part within {} ms",
                          timeout_.count());
      }
      return make_error(ErrorCode::kAborted, "a peer is gone ({})", error.what());
    }
  }

  void interrupt(const std::string&) override {
    {
      std::lock_guard lock(active_mutex_);
      interrupted_ = true;
      if (active_send_ != nullptr) active_send_->abortWaitSend();
      if (active_recv_ != nullptr) active_recv_->abortWaitRecv();
    }
    // The peers learn by their connections to us: none waits for a time-out.
    close_connections();
  }

 private:
  using Buffer = gloo::transport::UnboundBuffer;

  // Makes the buffers of the running exchange known to interrupt() for as long as they live.
  class Active {
   public:
    Active(GlooComm& comm, Buffer* send, Buffer* recv) : comm_(comm) {
      std::lock_guard lock(comm_.active_mutex_);
      comm_.active_send_ = send;
      comm_.active_recv_ = recv;
    }
    ~Active() {
      std::lock_guard lock(comm_.active_mutex_);
      comm_.active_send_ = nullptr;
      comm_.active_recv_ = nullptr;
    }

   private:
    GlooComm& comm_;
  };

  Status transfer(const Exchange& exchange, Clock::time_point deadline) {
    const uint64_t slot = next_slot_++;  // all ranks run the same collectives in the same order
    auto send = context_->createUnboundBuffer(const_cast<std::byte*>(exchange.send.data()),
                                              exchange.send.size());
    auto recv = context_->createUnboundBuffer(exchange.recv.data(), exchange.recv.size());
    Active active(*this, send.get(), recv.get());
    for (const Transfer& in : exchange.recvs) {
      recv->recv(static_cast<int>(in.peer), slot, in.offset, in.bytes);
    }
    for (const Transfer& out : exchange.sends) {
      send->send(static_cast<int>(out.peer), slot, out.offset, out.bytes);
    }
    bool whole = true;
    for (size_t i = 0; i < exchange.sends.size() && whole; ++i) {
      whole = !interrupted() && send->waitSend(remaining(deadline));
    }
    for (size_t i = 0; i < exchange.recvs.size() && whole; ++i) {
      whole = !interrupted() && recv->waitRecv(remaining(deadline));
    }
    if (!whole) return make_error(ErrorCode::kAborted, "interrupted");
    return {};
  }

  // Gloo takes a negative time for "use the default": never less than a millisecond.
  static std::chrono::milliseconds remaining(Clock::time_point deadline) {
    using std::chrono::milliseconds;
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    return std::max(left, milliseconds(1));
  }
  bool interrupted() {
    std::lock_guard lock(active_mutex_);
    return interrupted_;
  }
  void close_connections() {
    std::lock_guard lock(close_mutex_);
    if (!closed_ && context_) context_->closeConnections();
    closed_ = true;
  }

  const std::chrono::milliseconds timeout_;
  std::shared_ptr<gloo::Context> context_;
  uint64_t next_slot_ = 0;
  std::mutex active_mutex_;  // guards the three below
  Buffer* active_send_ = nullptr;
  Buffer* active_recv_ = nullptr;
  bool interrupted_ = false;
  std::mutex close_mutex_;
  bool closed_ = false;
};

// Gloo writes to sockets without MSG_NOSIGNAL: to lose a peer must not end the process. A handler
// that somebody installed stays.
void ignore_broken_pipes() {
  struct sigaction current {};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

}  // namespace

Result<std::unique_ptr<Comm>> make_gloo_comm(const GlooOptions& options) {
  CKPT_ASSERT(options.rank < options.size);
  if (options.size == 1) {
    return std::unique_ptr<Comm>(std::make_unique<GlooComm>(options, nullptr));
  }
  ignore_broken_pipes();
  RendezvousStore store(options.rendezvous);
  try {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options.address;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(options.rank),
                                                               static_cast<int>(options.size));
    context->setTimeout(std::chrono::milliseconds(options.connect_timeout_ms));
    context->connectFullMesh(store, device);
    return std::unique_ptr<Comm>(std::make_unique<GlooComm>(options, std::move(context)));
  } catch (const std::exception& error) {
    const ErrorCode code = store.error() ? store.error()->code : ErrorCode::kUnavailable;
    return make_error(code, "rank {} of {}: cannot connect to its peers: {}", options.rank,
                      options.size, error.what());
  }
}

}  // namespace moetrain
