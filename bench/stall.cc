#include "bench/stall.h"

#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "bench/daemon_process.h"
#include "bench/report.h"
#include "bench/save_run.h"
#include "bench/trainers.h"
#include "formats/arena.h"

namespace bench {

using ckpt::Result;

namespace {

constexpr int kFirstSaves = 5;  // each of a session of its own

// One trainer with its daemon, started anew when the store has become large.
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
    return restart_warm();
  }

  // The same bytes, fragment by fragment, into warm shared memory of the same kind, on a thread as
  // new as the trainer's is.
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
    return restart_warm();
  }

  // A daemon and a session that have just been started.
  ckpt::Status restart() {
    trainers_.reset();
    daemon_.reset();
    stored_bytes_ = 0;
    CKPT_ASSIGN(daemon_,
                DaemonProcess::start({.directory = options_.directory,
                                      .arena_bytes = options_.bytes + 2 * options_.slab_bytes,
                                      .engine = options_.engine}));
    settle(options_.directory);
    CKPT_ASSIGN(trainers_, Trainers::open({.socket = daemon_->socket(),
                                           .ranks = 1,
                                           .bytes = options_.bytes,
                                           .slab_bytes = options_.slab_bytes,
                                           .unit_bytes = options_.fragment_bytes}));
    return {};
  }

 private:
  ckpt::Status restart_warm() {
    CKPT_TRY(restart());
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

}  // namespace

Result<nlohmann::json> bench_stall(const StallOptions& options) {
  StallRun run(options);
  CKPT_TRY(run.init());
  const auto say = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  CKPT_ASSIGN(const Paired paired,
              measure_pairs(options.pairs, {.prepare = [&] { return run.prepare(); },
                                            .limit = [&] { return run.copy(); },
                                            .engine = [&] { return run.save(); },
                                            .progress = say}));
  CKPT_ASSIGN(const Paired first,
              measure_pairs(kFirstSaves, {.prepare = [] { return ckpt::Status(); },
                                          .limit = [&] { return run.copy(); },
                                          .engine = [&]() -> Result<double> {
                                            CKPT_TRY(run.restart());
                                            return run.save();
                                          },
                                          .progress = say}));
  const Outcome outcome{.bench = "stall",
                        .shape = {{"bytes", options.bytes},
                                  {"sessions", 1},
                                  {"slab_bytes", options.slab_bytes},
                                  {"fragment_bytes", options.fragment_bytes},
                                  {"io", options.engine}},
                        .unit = "s",
                        .limit_name = "memcpy of the same bytes into a warm arena",
                        .pass_ratio = 1.10,
                        .more_is_better = false};
  nlohmann::json document = to_json(outcome, paired, machine(options.directory));
  document["first_save"] = {
      {"ratio_to_limit", first.ratio},
      {"ratio_interval", {first.ratio_interval.low, first.ratio_interval.high}},
      {"seconds", first.engine}};
  return document;
}

std::string stall_text(const nlohmann::json& document) {
  const nlohmann::json& first = document.at("first_save");
  return to_text(document) +
         fmt::format(
             "the first save of a session, begun as soon as it is open: {:.3f} [{:.3f}, {:.3f}]\n",
             first.at("ratio_to_limit").get<double>(), first.at("ratio_interval")[0].get<double>(),
             first.at("ratio_interval")[1].get<double>());
}

}  // namespace bench
