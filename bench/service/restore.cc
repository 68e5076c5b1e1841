#include "bench/service/restore.h"

#include "bench/common/daemon_process.h"
#include "bench/common/raw_disk.h"
#include "bench/common/report.h"
#include "bench/common/scratch.h"
#include "bench/service/trainers.h"
#include "formats/arena.h"

namespace bench {

namespace {

constexpr uint64_t kSavedStep = 1;

// A store with one snapshot, and new trainers. The daemon that wrote the snapshot has been stopped
// and its slabs are gone, so that every byte comes from the disk.
class RestoreRun {
 public:
  ckpt::Status open(const RestoreBenchOptions& options) {
    const SaveShape& shape = options.shape;
    Trainers::Options trainers{.ranks = shape.sessions,
                               .bytes = shape.bytes,
                               .slab_bytes = shape.slab_bytes,
                               .unit_bytes = shape.fragment_bytes};
    CKPT_ASSIGN(daemon_, DaemonProcess::start({.directory = options.directory,
                                               .arena_bytes = Trainers::arena_bytes(trainers),
                                               .engine = shape.engine}));
    trainers.socket = daemon_->socket();
    CKPT_ASSIGN(trainers_, Trainers::open(trainers));
    CKPT_TRY(trainers_->save(kSavedStep));
    trainers_.reset();
    daemon_->stop();
    CKPT_TRY(daemon_->restart());
    trainers.join = false;
    CKPT_ASSIGN(trainers_, Trainers::open(trainers));
    settle(options.directory);
    CKPT_TRY(trainers_->restore(kSavedStep));  // faults memory in, as for the limit's pool
    return trainers_->check_restored(kSavedStep);
  }
  ckpt::Result<double> restore() { return trainers_->restore(kSavedStep); }
  ckpt::Result<Usage> usage() const { return usage_of(daemon_->pid()); }

 private:
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<Trainers> trainers_;
};

}  // namespace

ckpt::Result<nlohmann::json> bench_restore(const RestoreBenchOptions& options) {
  const SaveShape& shape = options.shape;
  const double bytes = static_cast<double>(shape.bytes);
  CKPT_ASSIGN(const ScratchDirectory scratch, ScratchDirectory::make(options.directory));
  CKPT_ASSIGN(const auto pool, make_raw_pool());
  const std::string file = LimitFiles(scratch.path()).next();
  CKPT_TRY(raw_write(file, shape.bytes, {}, pool.bytes()));
  const auto read = [&](const RawConfig& config) {
    return raw_read(file, shape.bytes, config, pool.bytes());
  };
  CKPT_ASSIGN(const RawConfig best, sweep(read, say));
  say(fmt::format("limit: {}", best.name()));
  RestoreRun run;
  CKPT_TRY(run.open(options));
  const auto restore = [&]() -> ckpt::Result<double> {
    CKPT_ASSIGN(const double seconds, run.restore());
    return bytes / seconds;
  };
  CKPT_ASSIGN(const Usage before, run.usage());
  CKPT_ASSIGN(const Paired paired,
              measure_pairs(options.pairs, {.prepare = [] { return ckpt::Status(); },
                                            .limit = [&] { return read(best); },
                                            .engine = restore,
                                            .progress = say}));
  CKPT_ASSIGN(const Usage after, run.usage());
  const Outcome outcome{.bench = "restore",
                        .shape = {{"bytes", shape.bytes},
                                  {"sessions", shape.sessions},
                                  {"slab_bytes", shape.slab_bytes},
                                  {"fragment_bytes", shape.fragment_bytes},
                                  {"io", shape.engine}},
                        .unit = "bytes/s",
                        .limit_name = best.name(),
                        .pass_ratio = kRestorePassRatio};
  nlohmann::json document = to_json(outcome, paired, machine(options.directory));
  const double restored_gb = bytes / 1e9 * static_cast<double>(paired.limit.size());
  document["cpu"] = {{"seconds_per_gb", (after.cpu_seconds - before.cpu_seconds) / restored_gb}};
  document["resident_bytes_peak"] = after.resident_bytes_peak;
  return document;
}

}  // namespace bench
