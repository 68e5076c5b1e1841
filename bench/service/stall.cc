#include "bench/service/stall.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <chrono>
#include <ckpt/client.hpp>
#include <cstring>
#include <thread>

#include "bench/common/daemon_process.h"
#include "bench/common/report.h"
#include "bench/service/save_run.h"
#include "bench/service/trainers.h"
#include "formats/arena.h"
#include "trainer/checkpoint/client_status.h"

namespace bench {

using ckpt::Result;

namespace {

constexpr int kFirstSaves = 11;  // each in a new session on a new daemon
constexpr double kPassRatio = 1.10;
constexpr std::chrono::seconds kPoolWarmMax{60};
constexpr uint32_t kQueryTimeoutMs = 10'000;

enum class Pool { kWarm, kNone };

// Waits until the daemon's pool of warm memory has `bytes`.
ckpt::Status wait_warm(const DaemonProcess& daemon, uint64_t bytes) {
  ckpt::client::OpenOptions open;
  open.socket = "unix:" + daemon.socket();
  open.control = true;
  CKPT_ASSIGN(auto session, moetrain::to_result(ckpt::client::Session::open(open)));
  const auto deadline = std::chrono::steady_clock::now() + kPoolWarmMax;
  while (std::chrono::steady_clock::now() < deadline) {
    CKPT_ASSIGN(const auto answer,
                moetrain::to_result(session.query("status", "{}", kQueryTimeoutMs)));
    const auto status = nlohmann::json::parse(answer.json);
    if (status.at("warm_pool_bytes").get<uint64_t>() >= bytes) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return ckpt::make_error(ckpt::ErrorCode::kDeadlineExceeded,
                          "ckptd's pool of {} bytes was not warm within {} s", bytes,
                          kPoolWarmMax.count());
}

// One trainer with its daemon. Both are restarted when the store has become large.
class StallRun {
 public:
  explicit StallRun(const StallOptions& options) : options_(options) {}

  ckpt::Status init() {
    const ckpt::ArenaLayout layout{
        .slab_bytes = options_.slab_bytes,
        .slab_count = static_cast<uint32_t>(options_.bytes / options_.slab_bytes)};
    CKPT_ASSIGN(auto created, ckpt::ArenaMapping::create(layout));
    copy_target_ = std::move(created.mapping);
    std::memset(copy_target_.bytes().data(), 1, copy_target_.bytes().size());
    return restart_and_save();
  }

  // Copies the same bytes, fragment by fragment, into warm shared memory of the same kind, in a new
  // thread like the trainer's.
  Result<double> copy() {
    double seconds = 0;
    std::thread([&] { seconds = copy_here(); }).join();
    return seconds;
  }

  Result<double> save() {
    CKPT_ASSIGN(const Trainers::Saved saved, trainers_->save(++step_));
    stored_bytes_ += options_.bytes;
    return saved.stall_seconds;
  }

  ckpt::Status prepare() {
    if (stored_bytes_ + options_.bytes <= kStoreBytesMax) return {};
    return restart_and_save();
  }

  double open_seconds() const { return trainers_->open_seconds(); }

  // Replaces the daemon and the session by new ones.
  ckpt::Status restart(Pool pool) {
    trainers_.reset();
    daemon_.reset();
    stored_bytes_ = 0;
    const uint64_t arena_bytes = options_.bytes + 2 * options_.slab_bytes;
    const uint64_t pool_bytes = pool == Pool::kWarm ? arena_bytes : 0;
    CKPT_ASSIGN(daemon_, DaemonProcess::start({.directory = options_.directory,
                                               .arena_bytes = arena_bytes,
                                               .warm_pool_bytes = pool_bytes,
                                               .engine = options_.engine}));
    CKPT_TRY(wait_warm(*daemon_, pool_bytes));
    settle(options_.directory);
    CKPT_ASSIGN(trainers_, Trainers::open({.socket = daemon_->socket(),
                                           .ranks = 1,
                                           .bytes = options_.bytes,
                                           .slab_bytes = options_.slab_bytes,
                                           .unit_bytes = options_.fragment_bytes}));
    return {};
  }

 private:
  ckpt::Status restart_and_save() {
    CKPT_TRY(restart(Pool::kWarm));
    CKPT_ASSIGN([[maybe_unused]] const double first, save());
    CKPT_ASSIGN([[maybe_unused]] const double copied, copy());
    settle(options_.directory);
    return {};
  }

  double copy_here() {
    const ckpt::ByteView from = trainers_->state();
    const auto start = std::chrono::steady_clock::now();
    for (uint64_t at = 0; at < options_.bytes; at += options_.fragment_bytes) {
      const uint64_t length = std::min(options_.fragment_bytes, options_.bytes - at);
      std::memcpy(copy_target_.bytes().data() + at, from.data() + at, length);
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return elapsed.count();
  }

  const StallOptions options_;
  ckpt::ArenaMapping copy_target_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<Trainers> trainers_;
  uint64_t step_ = 0;
  uint64_t stored_bytes_ = 0;
};

struct FirstSaves {
  Paired paired;
  std::vector<double> open_seconds;
};

Result<FirstSaves> measure_first(StallRun& run, Pool pool, const Pairs& pairs) {
  FirstSaves first;
  CKPT_ASSIGN(first.paired,
              measure_pairs(pairs, {.prepare = [] { return ckpt::Status(); },
                                    .limit = [&] { return run.copy(); },
                                    .engine = [&]() -> Result<double> {
                                      CKPT_TRY(run.restart(pool));
                                      first.open_seconds.push_back(run.open_seconds());
                                      return run.save();
                                    },
                                    .progress = say}));
  return first;
}

nlohmann::json first_json(const FirstSaves& first) {
  const Paired& paired = first.paired;
  return {{"ratio_to_limit", paired.ratio},
          {"ratio_interval", {paired.ratio_interval.low, paired.ratio_interval.high}},
          {"self_ratio", paired.self_ratio},
          {"self_interval", {paired.self_interval.low, paired.self_interval.high}},
          {"pairs_added", paired.pairs_added},
          {"seconds", paired.engine},
          {"open_seconds", median(first.open_seconds)}};
}

std::string first_text(const nlohmann::json& first, const char* what) {
  return fmt::format("{}: {:.3f} [{:.3f}, {:.3f}]", what, first.at("ratio_to_limit").get<double>(),
                     first.at("ratio_interval")[0].get<double>(),
                     first.at("ratio_interval")[1].get<double>());
}

}  // namespace

Result<nlohmann::json> bench_stall(const StallOptions& options) {
  StallRun run(options);
  CKPT_TRY(run.init());
  CKPT_ASSIGN(const Paired paired,
              measure_pairs(options.pairs, {.prepare = [&] { return run.prepare(); },
                                            .limit = [&] { return run.copy(); },
                                            .engine = [&] { return run.save(); },
                                            .progress = say}));
  // Remaining time for more pairs. The cold saves have no verdict, so more pairs would not help.
  Pairs of_first = options.pairs;
  of_first.at_least = kFirstSaves;
  of_first.seconds_more -= paired.seconds_added;
  CKPT_ASSIGN(const FirstSaves first, measure_first(run, Pool::kWarm, of_first));
  CKPT_ASSIGN(const FirstSaves cold, measure_first(run, Pool::kNone, exactly(kFirstSaves)));
  const Outcome outcome{.bench = "stall",
                        .shape = {{"bytes", options.bytes},
                                  {"sessions", 1},
                                  {"slab_bytes", options.slab_bytes},
                                  {"fragment_bytes", options.fragment_bytes},
                                  {"io", options.engine}},
                        .unit = "s",
                        .limit_name = "memcpy of the same bytes into a warm arena",
                        .pass_ratio = kPassRatio,
                        .more_is_better = false};
  nlohmann::json document = to_json(outcome, paired, machine(options.directory));
  document["first_save"] = first_json(first);
  document["first_save"]["verdict"] = verdict(first.paired, kPassRatio, /*more_is_better=*/false);
  document["first_save_cold"] = first_json(cold);
  return document;
}

std::string stall_text(const nlohmann::json& document) {
  const nlohmann::json& first = document.at("first_save");
  return fmt::format("{}{}: {}\n{}\n", to_text(document),
                     first_text(first, "the first save of a session, begun as soon as it is open"),
                     first.at("verdict").get<std::string>(),
                     first_text(document.at("first_save_cold"), "the same without a warm pool"));
}

}  // namespace bench
