// Comm: the collectives of one epoch's group.
//
// Implementations: `gloo` (one process per rank), `local` (threads of one process), `nccl` (one
// process and one GPU per rank). One test body runs on all. Reductions of host memory are
// bit-identical from run to run and between implementations for the same group size: element by
// element the order of summation is that of the ranks, never of arrival, and does not depend on how
// a buffer is cut into calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/base/result.h"
#include "trainer/device/tensor.h"

namespace moetrain {

using ckpt::Result;
using ckpt::Status;

class CommThread;

// Failures are kAborted (a peer is gone, abort() was called) or kDeadlineExceeded (a peer hangs;
// names the collective). After a failure the communicator is unusable and the group must be left.
class Comm {
 public:
  virtual ~Comm() = default;
  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;

  // In place; sum of all ranks' values, the same bits on every rank.
  virtual Status all_reduce_sum(std::span<float> values) = 0;
  virtual Status all_reduce_sum(std::span<double> values) = 0;
  virtual Status all_reduce_sum(std::span<int64_t> values) = 0;
  virtual Status all_reduce_max(std::span<int64_t> values) = 0;

  // Unpadded all-to-all. send_counts[r] values go to rank r, consecutively from `send`;
  // recv_counts[r] come from rank r, consecutively into `recv`. Counts are of floats.
  virtual Status all_to_all_v(std::span<const float> send, std::span<const int64_t> send_counts,
                              std::span<float> recv, std::span<const int64_t> recv_counts) = 0;
  // The same for integers (token counts, positions).
  virtual Status all_to_all_v(std::span<const int64_t> send, std::span<const int64_t> send_counts,
                              std::span<int64_t> recv, std::span<const int64_t> recv_counts) = 0;

  virtual Status all_to_all_v(std::span<const std::byte> send, std::span<const int64_t> send_counts,
                              std::span<std::byte> recv, std::span<const int64_t> recv_counts) = 0;

  // The same for memory of a device. Counts are of elements. Unless an implementation reaches
  // the device's memory, this goes through host memory. The call is ordered with the device's
  // queue: it runs after earlier work, and later work sees the result. Sums of `gloo` and `local`
  // equal, to the bit, those of host memory.
  virtual Status all_reduce_sum(Tensor& values);  // kFloat
  virtual Status all_to_all_v(const Tensor& send, std::span<const int64_t> send_counts,
                              Tensor& recv, std::span<const int64_t> recv_counts);

  // recv holds size() blocks of send.size(), by rank.
  virtual Status all_gather(std::span<const int64_t> send, std::span<int64_t> recv) = 0;
  virtual Status broadcast(std::span<float> values, uint32_t root) = 0;
  virtual Status broadcast(std::span<int64_t> values, uint32_t root) = 0;
  virtual Status barrier() = 0;

  // Time that the calling thread has spent in exchanges so far: waiting for other ranks and for
  // bytes. Waits of a device alone do not count.
  virtual int64_t waited_ns() const = 0;

  // From any thread: every collective in progress or later returns kAborted.
  virtual void abort(const std::string& reason) = 0;

  // The thread that runs collectives beside the caller's; null: there is none (comm_thread.h).
  virtual CommThread* comm_thread() { return nullptr; }

 private:
  std::vector<std::byte> host_send_;  // copies of device memory
  std::vector<std::byte> host_recv_;
};

// Counts of elements, as counts of bytes.
std::vector<int64_t> counts_in_bytes(std::span<const int64_t> counts, Type type);

// Key-value rendezvous by which the ranks of a gloo group find each other (ckptd's, per epoch).
struct Rendezvous {
  std::function<Status(const std::string& key, const std::vector<char>& value)> set;
  std::function<Result<std::vector<char>>(const std::string& key)> get;  // waits, bounded
};
struct GlooOptions {
  uint32_t rank = 0;
  uint32_t size = 1;
  Rendezvous rendezvous;
  // Returns a reason to stop connecting, such as the end of the epoch; nullopt: continue. Polled on
  // the caller's thread while connections are made; must not block. May be empty.
  std::function<std::optional<std::string>()> interrupted;
  uint32_t timeout_ms = 30'000;          // of one collective
  uint32_t connect_timeout_ms = 10'000;  // of all connections, when the group forms
  std::string address = "127.0.0.1";     // of the interface peers reach this rank by
};
// Errors: those of the rendezvous; kAborted with the reason of the interruption; kUnavailable if a
// peer cannot be reached.
//
// Destroying a communicator resets its connections. A rank may do so once it knows that its peers
// have left their last collective (for example by a barrier, or because a checkpoint to which all
// contribute afterwards is durable). SIGPIPE is ignored from the first call on, unless handled.
Result<std::unique_ptr<Comm>> make_gloo_comm(const GlooOptions& options);

// `size` communicators for `size` threads of this process.
std::vector<std::unique_ptr<Comm>> make_local_comms(uint32_t size, uint32_t timeout_ms = 30'000);

}  // namespace moetrain
