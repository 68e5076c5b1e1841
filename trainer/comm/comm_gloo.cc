// Communicator of processes over TCP: Gloo's full mesh of connections and its unbound buffers.
//
// Gloo's own collectives are not used: they ignore an aborted wait, and the order in which they add
// depends on the algorithm and on how a buffer is cut (comm_pairwise.h says what we promise).
#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>
#include <signal.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <string>

#include "trainer/comm/comm_pairwise.h"
#include "trainer/comm/gloo_mesh.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

using Clock = std::chrono::steady_clock;

// The next two are separate functions for tests/tsan.supp: TSan sees only some of the locks of
// Gloo.
//
// The text of an exception that a thread of Gloo may have created.
[[gnu::noinline]] std::string gloo_reason(const std::exception& error) { return error.what(); }
// Ends the waits for these buffers; null: none.
[[gnu::noinline]] void abort_gloo_waits(gloo::transport::UnboundBuffer* send,
                                        gloo::transport::UnboundBuffer* recv) {
  if (send != nullptr) send->abortWaitSend();
  if (recv != nullptr) recv->abortWaitRecv();
}

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
    // All ranks run the same collectives in the same order; one that has nothing to send or receive
    // in this one counts it all the same.
    const uint64_t slot = next_slot_++;
    if (exchange.sends.empty() && exchange.recvs.empty()) return {};
    const auto deadline = Clock::now() + timeout_;
    try {
      return transfer(exchange, slot, deadline);
    } catch (const std::exception& error) {
      // Gloo reports a time-out and a lost connection by the same type.
      if (Clock::now() >= deadline) {
        return make_error(ErrorCode::kDeadlineExceeded, "a peer did not take part within {} ms",
                          timeout_.count());
      }
      return make_error(ErrorCode::kAborted, "a peer is gone ({})", gloo_reason(error));
    }
  }

  void interrupt(const std::string&) override {
    {
      std::lock_guard lock(active_mutex_);
      interrupted_ = true;
      abort_gloo_waits(active_send_, active_recv_);
    }
    // The peers notice by their connections to this rank: none waits for its timeout.
    close_connections();
  }

 private:
  using Buffer = gloo::transport::UnboundBuffer;

  // Scope: interrupt() knows the buffers of the running exchange.
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

  Status transfer(const Exchange& exchange, uint64_t slot, Clock::time_point deadline) {
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

// Gloo writes to sockets without MSG_NOSIGNAL: a lost peer must not end the process. An installed
// handler stays.
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
  CKPT_ASSIGN(std::shared_ptr<GlooMesh> mesh, GlooMesh::connect(options));
  return std::unique_ptr<Comm>(std::make_unique<GlooComm>(options, std::move(mesh)));
}

}  // namespace moetrain
