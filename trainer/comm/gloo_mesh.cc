#include "trainer/comm/gloo_mesh.h"

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <thread>

namespace moetrain {

using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Interval of polling `interrupted`: a small part of a recovery's time.
constexpr milliseconds kMeshPollInterval{5};

std::optional<std::string> ask(const GlooOptions& options) {
  return options.interrupted ? options.interrupted() : std::nullopt;
}

// Gloo's event loop spins while the rank's own thread holds the lock of a connection that has
// become readable. As a batch thread it does not preempt the thread that it waits for: with more
// ranks than cores, the steps of a small model took a third less time.
std::shared_ptr<gloo::transport::Device> create_device(const std::string& address) {
  return std::async(std::launch::async,
                    [&] {
                      const sched_param none{};  // the loop inherits the policy
                      ::sched_setscheduler(0, SCHED_BATCH, &none);
                      gloo::transport::tcp::attr attributes;
                      attributes.hostname = address;
                      return gloo::transport::tcp::CreateDevice(attributes);
                    })
      .get();
}

}  // namespace

GlooMesh::GlooMesh(const GlooOptions& options, std::shared_ptr<gloo::transport::Device> device)
    : gloo::Context(static_cast<int>(options.rank), static_cast<int>(options.size)) {
  device_ = std::move(device);
  transportContext_ = device_->createContext(rank, size);
  // Gloo multiplies this by five; ours, in connect_all, comes first.
  transportContext_->setTimeout(milliseconds(options.connect_timeout_ms));
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) transportContext_->createPair(peer);  // listens from here on
  }
}

Status GlooMesh::connect_all(const GlooOptions& options,
                             const std::vector<std::vector<char>>& addresses) {
  std::atomic<bool> cut = false;
  std::promise<Status> promise;
  std::future<Status> result = promise.get_future();
  std::jthread connecting([&] {
    Status status;
    try {
      for (int peer = 0; peer < size && !cut; ++peer) {
        if (peer != rank) getPair(peer)->connect(addresses[static_cast<size_t>(peer)]);
      }
    } catch (const std::exception& error) {
      status = make_error(ErrorCode::kUnavailable, "{}", error.what());
    }
    promise.set_value(status);
  });
  const auto deadline = Clock::now() + milliseconds(options.connect_timeout_ms);
  std::optional<Error> reason;
  while (result.wait_for(kMeshPollInterval) != std::future_status::ready) {
    if (reason) {
      // Again each turn: a pair may have been on its way into connect() when it was closed.
      closeConnections();
    } else if (const auto interrupted = ask(options)) {
      reason = make_error(ErrorCode::kAborted, "{}", *interrupted);
    } else if (Clock::now() >= deadline) {
      reason = make_error(ErrorCode::kUnavailable, "not all of them answered within {} ms",
                          options.connect_timeout_ms);
    }
    cut = reason.has_value();
  }
  if (reason) return *reason;
  return result.get();
}

// A rank listens at an address for each peer; they are published as one value, in order of rank.
Status GlooMesh::publish(const GlooOptions& options) {
  std::vector<char> mine;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const std::vector<char> address = getPair(peer)->address().bytes();
    mine.insert(mine.end(), address.begin(), address.end());
  }
  return options.rendezvous.set(std::to_string(rank), mine);
}

// The address at which each peer listens for this rank.
Result<std::vector<std::vector<char>>> GlooMesh::look_up(const GlooOptions& options) {
  std::vector<std::vector<char>> addresses(options.size);
  for (uint32_t peer = 0; peer < options.size; ++peer) {
    if (peer == options.rank) continue;
    CKPT_ASSIGN(const std::vector<char> theirs, options.rendezvous.get(std::to_string(peer)));
    const size_t bytes = theirs.size() / (options.size - 1);
    if (bytes == 0 || theirs.size() != bytes * (options.size - 1)) {
      return make_error(ErrorCode::kUnavailable, "rank {} has published {} bytes of addresses",
                        peer, theirs.size());
    }
    const size_t index = options.rank < peer ? options.rank : options.rank - 1;
    const auto begin = theirs.begin() + static_cast<ptrdiff_t>(index * bytes);
    addresses[peer].assign(begin, begin + static_cast<ptrdiff_t>(bytes));
  }
  return addresses;
}

Status GlooMesh::form(const GlooOptions& options) {
  CKPT_TRY(publish(options));
  CKPT_ASSIGN(const auto addresses, look_up(options));
  return connect_all(options, addresses);
}

Result<std::shared_ptr<GlooMesh>> GlooMesh::connect(const GlooOptions& options) {
  Status formed;
  try {
    const std::shared_ptr<GlooMesh> mesh(new GlooMesh(options, create_device(options.address)));
    formed = mesh->form(options);
    if (formed.ok()) return mesh;
  } catch (const std::exception& error) {
    formed = make_error(ErrorCode::kUnavailable, "{}", error.what());
  }
  return make_error(formed.error().code, "rank {} of {}: cannot connect to its peers: {}",
                    options.rank, options.size, formed.error().message);
}

}  // namespace moetrain
