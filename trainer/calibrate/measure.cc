#include "trainer/calibrate/measure.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "formats/base/stream_copy.h"
#include "trainer/comm/comm.h"
#include "trainer/loop.h"
#include "trainer/model/model.h"
#include "trainer/parallel/make_expert_store.h"
#include "trainer/placement/compute_placement.h"

namespace moetrain::calibrate {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

double seconds_of(const std::chrono::steady_clock::duration& duration) {
  return std::chrono::duration<double>(duration).count();
}

// Seconds of the fastest of `steps` steps, after one warm-up step.
Result<double> step_seconds(const TrainConfig& config, std::span<const uint8_t> text,
                            uint32_t steps) {
  const auto comms = make_local_comms(1);
  const auto device = make_cpu_device();
  CKPT_ASSIGN(const ComputePlacement placement,
              static_placement(config.model.layers, config.model.experts, 1));
  CKPT_ASSIGN(auto store, make_expert_store(*device, config.model, placement,
                                            Ownership::replicated(placement), 0));
  CKPT_ASSIGN(const auto model, Model::create(*device, config.model, std::move(store)));
  model->initialise(config.seed);
  Trainer trainer(config, text);
  moetrain::Progress progress;
  progress.routed_tokens.resize(size_t{config.model.layers} * config.model.experts);
  progress.routed_last = progress.routed_tokens;
  progress.expert_updates = progress.routed_tokens;
  double best = 0;
  for (uint32_t step = 0; step <= steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    CKPT_TRY(trainer.step(*comms[0], *model, progress));
    const double took = seconds_of(std::chrono::steady_clock::now() - begin);
    if (step == 1 || (step > 1 && took < best)) best = took;
  }
  return best;
}

// Rendezvous of the communicators of one process.
class Board {
 public:
  Rendezvous rendezvous() {
    return {.set = [this](const std::string& key, const std::vector<char>& value) -> Status {
              const std::lock_guard lock(mutex_);
              values_[key] = value;
              changed_.notify_all();
              return {};
            },
            .get = [this](const std::string& key) -> Result<std::vector<char>> {
              std::unique_lock lock(mutex_);
              const auto there = [&] { return values_.contains(key); };
              if (changed_.wait_for(lock, std::chrono::seconds(10), there)) return values_[key];
              return make_error(ErrorCode::kDeadlineExceeded,
                                "calibrate: a communicator did not come within 10 s ({})", key);
            }};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<char>> values_;
};

constexpr int kRepeats = 7;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Median seconds of `exchange`; the slowest rank's time counts for all.
template <typename Exchange>
Result<double> timed(Comm& comm, const Exchange& exchange) {
  std::vector<double> seconds;
  seconds.reserve(kRepeats);
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    CKPT_TRY(comm.barrier());
    const auto begin = std::chrono::steady_clock::now();
    CKPT_TRY(exchange());
    seconds.push_back(seconds_of(std::chrono::steady_clock::now() - begin));
  }
  CKPT_TRY(comm.barrier());
  return median(std::move(seconds));
}

Result<Network> measure_rank(Comm& comm, uint64_t bytes) {
  const auto ranks = static_cast<int64_t>(comm.size());
  const auto each = std::max<int64_t>(static_cast<int64_t>(bytes / sizeof(float)) / ranks, 1);
  std::vector<float> send(static_cast<size_t>(each * ranks), 1.0F);
  std::vector<float> receive(send.size());
  const std::vector<int64_t> counts(comm.size(), each);
  const std::vector<int64_t> ones(comm.size(), 1);
  const auto some = static_cast<size_t>(ranks);
  CKPT_ASSIGN(const double short_s, timed(comm, [&] {
                return comm.all_to_all_v(std::span<const float>(send).first(some), ones,
                                         std::span(receive).first(some), ones);
              }));
  CKPT_ASSIGN(const double long_s, timed(comm, [&] {
                return comm.all_to_all_v(std::span<const float>(send), counts, std::span(receive),
                                         counts);
              }));
  CKPT_ASSIGN(const double reduce_s,
              timed(comm, [&] { return comm.all_reduce_sum(std::span(receive)); }));
  const double others = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  const double sent = static_cast<double>(send.size() * sizeof(float)) * others;
  return Network{sent / std::max(long_s - short_s, 1e-9), short_s * 1e6,
                 2 * sent / std::max(reduce_s, 1e-9)};
}

}  // namespace

Result<Compute> measure_compute(const TrainConfig& config, std::span<const uint8_t> text,
                                uint32_t steps) {
  if (config.model.experts < 2) {
    return make_error(ErrorCode::kInvalidArgument,
                      "calibrate: a model with {} expert does not tell experts from the rest",
                      config.model.experts);
  }
  TrainConfig one = config;
  one.model.top_k = 1;
  TrainConfig two = config;
  two.model.top_k = 2;
  CKPT_ASSIGN(const double with_one, step_seconds(one, text, steps));
  CKPT_ASSIGN(const double with_two, step_seconds(two, text, steps));
  const auto tokens = static_cast<double>(config.tokens_per_step());
  const double experts = std::max(with_two - with_one, 0.0);
  return Compute{std::max(with_one - experts, 0.0) / tokens * 1e6,
                 experts / tokens / config.model.layers * 1e6};
}

Result<Network> measure_network(uint32_t ranks, uint64_t bytes) {
  if (ranks < 2 || ranks > kRanksMax) {
    return make_error(ErrorCode::kInvalidArgument, "calibrate: {} ranks: 2 to {}", ranks,
                      kRanksMax);
  }
  Board board;
  std::vector<std::optional<Result<Network>>> results(ranks);
  std::vector<std::thread> threads;
  threads.reserve(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&board, &results, rank, ranks, bytes] {
      auto comm = make_gloo_comm({.rank = rank, .size = ranks, .rendezvous = board.rendezvous()});
      results[rank] = comm.ok() ? measure_rank(**comm, bytes) : Result<Network>(comm.error());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) {
    if (!result->ok()) return result->error();
  }
  return **results[0];
}

double measure_copy(uint64_t bytes) {
  const std::vector<std::byte> from(bytes, std::byte{7});
  std::vector<std::byte> to(bytes);
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    ckpt::base::stream_crc32c(to, from);
    const double took = seconds_of(std::chrono::steady_clock::now() - begin);
    best = std::max(best, static_cast<double>(bytes) / std::max(took, 1e-9));
  }
  return best;
}

}  // namespace moetrain::calibrate
