// Snapshots and restores of device memory by the client's stager and restorer, for other trainers
// than moetrain: with memory from a pool of virtual memory, or while CUDA graphs are captured.
#include <cuda_runtime.h>

#include "client/src/cuda/capture_scope.h"
#include "tests/support/expandable_segment.h"
#include "tests/trainer/device/check_parts.h"

namespace moetrain {

namespace {

using bench::gpu::begin_restore;
using bench::gpu::begin_snapshot;
using ckpt::kernels::CudaQueue;
using ckpt::lib::PinnedArena;
using ckpt::lib::RestoreBuffers;
using ckpt::lib::Restorer;
using ckpt::lib::Stager;
using ckpt::test::ExpandableSegment;

constexpr uint64_t kUnits = 3;

// A session without a model, like that of a trainer with its own memory.
struct Client {
  std::unique_ptr<bench::gpu::MemorySink> sink;
  std::unique_ptr<PinnedArena> arena;
  std::unique_ptr<RestoreBuffers> buffers;
  bench::gpu::SinkSnapshot snapshot;
  std::unique_ptr<Stager> stager;
};

Status open_client(const Sizes& sizes, int device, uint64_t bytes, Client& client) {
  const auto slabs = static_cast<uint32_t>(bytes / (sizes.sink.slab_bytes / 2) + 2);
  CKPT_ASSIGN(client.sink, bench::gpu::make_sink(sizes.sink.slab_bytes, slabs));
  client.arena =
      std::make_unique<PinnedArena>(handle(*client.sink), PinnedArena::Options{.device = device});
  CKPT_ASSIGN(client.buffers, RestoreBuffers::make(device, kTimeoutMs));
  CKPT_ASSIGN(client.stager, Stager::open(handle(*client.sink), *client.arena,
                                          {.device = device,
                                           .gather_bytes = sizes.sink.gather_bytes,
                                           .chunk_bytes = sizes.sink.chunk_bytes,
                                           .timeout_ms = kTimeoutMs}));
  return {};
}

// Saves [from, from + bytes) as units, each of which reaches over the ends of a pool's chunks.
Status save(Client& client, CudaQueue& queue, const std::byte* from, uint64_t bytes) {
  std::vector<ckpt_cuda_piece> pieces;
  for (uint32_t unit = 0; unit < kUnits; ++unit) {
    const uint64_t begin = bytes * unit / kUnits;
    pieces.push_back({unit, 0, from + begin, bytes * (unit + 1) / kUnits - begin});
  }
  client.snapshot = begin_snapshot(*client.sink);
  CKPT_TRY(client.stager->stage(handle(client.snapshot), pieces, queue.stream()));
  return client.stager->drain(kTimeoutMs);
}

Status restore(Client& client, CudaQueue& queue, std::byte* to, uint64_t bytes) {
  std::vector<ckpt_cuda_destination> destinations;
  for (uint32_t unit = 0; unit < kUnits; ++unit) {
    const uint64_t begin = bytes * unit / kUnits;
    destinations.push_back({unit, 0, to + begin, bytes * (unit + 1) / kUnits - begin});
  }
  Restorer restorer(handle(*client.sink), *client.arena, *client.buffers,
                    {.device = queue.device(), .timeout_ms = kTimeoutMs, .cufile = {}});
  bench::gpu::SinkRestore windows = begin_restore(client.snapshot);
  CKPT_TRY(restorer.run(handle(windows), destinations, queue.stream()));
  if (windows.mismatches == 0) return {};
  return ckpt::make_error(ckpt::ErrorCode::kCorrupt, "{} pieces do not have their CRC",
                          windows.mismatches);
}

std::vector<std::byte> random_bytes(Checker& c, uint64_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(c.random());
  return bytes;
}

Status round_trip_of_a_pool(Checker& c, const Sizes& sizes) {
  CudaQueue& queue = c.queue();
  const uint64_t bytes = 5 * sizes.sink.slab_bytes / 2 + 1;
  const std::vector<std::byte> state = random_bytes(c, bytes);
  CKPT_ASSIGN(const auto from, ExpandableSegment::make(bytes + 1));
  CKPT_ASSIGN(const auto to, ExpandableSegment::make(bytes + 2));
  queue.upload(from->data() + 1, state.data(), bytes);
  Client client;
  CKPT_TRY(open_client(sizes, queue.device(), bytes, client));
  CKPT_TRY(save(client, queue, from->data() + 1, bytes));
  CKPT_TRY(restore(client, queue, to->data() + 2, bytes));
  std::vector<std::byte> found(bytes);
  CKPT_TRY(download(queue, found.data(), to->data() + 2, bytes));
  c.expect_equal(found, state, "what was restored");
  return {};
}

// The stream of a graph capture. The destructor ends an open capture.
class CapturedStream {
 public:
  CapturedStream() { (void)cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
  ~CapturedStream() {
    (void)end();
    (void)cudaStreamDestroy(stream_);
    (void)cudaGetLastError();
  }
  CapturedStream(const CapturedStream&) = delete;
  CapturedStream& operator=(const CapturedStream&) = delete;
  // Begins a capture in the strictest mode, and captures a memset of one byte.
  bool begin(std::byte* byte) {
    is_capturing_ = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal) == cudaSuccess;
    return is_capturing_ && cudaMemsetAsync(byte, 0x42, 1, stream_) == cudaSuccess;
  }
  // Ends the capture; true if it was valid to its end.
  bool end() {
    if (!std::exchange(is_capturing_, false)) return false;
    cudaGraph_t graph = nullptr;
    const bool valid = cudaStreamEndCapture(stream_, &graph) == cudaSuccess;
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    return valid;
  }
  CUstream_st* stream() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  bool is_capturing_ = false;
};

Status round_trip_beside_a_capture(Checker& c, const Sizes& sizes) {
  CudaQueue& queue = c.queue();
  const uint64_t bytes = 2 * sizes.sink.slab_bytes;
  const std::vector<std::byte> state = random_bytes(c, bytes);
  CKPT_ASSIGN(const auto memory, ckpt::kernels::DeviceArray<std::byte>::make(bytes + 1));
  queue.upload(memory.data(), state.data(), bytes);
  CKPT_TRY(synchronize(queue));
  CapturedStream graph;
  c.expect(graph.begin(memory.data() + bytes), "a capture does not begin");
  {
    const ckpt::lib::CaptureScope scope;
    Client client;
    CKPT_TRY(open_client(sizes, queue.device(), bytes, client));
    CKPT_TRY(save(client, queue, memory.data(), bytes));
    c.expect(cudaMemsetAsync(memory.data(), 0, bytes, queue.stream()) == cudaSuccess, "a memset");
    CKPT_TRY(restore(client, queue, memory.data(), bytes));
    c.expect(!ckpt::lib::check_not_capturing(graph.stream(), "a call").ok(),
             "a captured stream is not refused");
  }
  c.expect(graph.end(), "the capture is not valid any more");
  std::vector<std::byte> found(bytes);
  CKPT_TRY(download(queue, found.data(), memory.data(), bytes));
  c.expect_equal(found, state, "what was restored");
  return {};
}

void expect_ok(Checker& c, const Status& status) {
  c.expect(status.ok(), status.ok() ? "" : status.error().message);
}

}  // namespace

void check_pool_memory(Checker& c, const Sizes& sizes) {
  expect_ok(c, round_trip_of_a_pool(c, sizes));
}

void check_beside_a_capture(Checker& c, const Sizes& sizes) {
  expect_ok(c, round_trip_beside_a_capture(c, sizes));
}

}  // namespace moetrain
