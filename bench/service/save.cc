#include "bench/service/save.h"

#include <algorithm>

#include "bench/common/raw_disk.h"
#include "bench/common/report.h"
#include "bench/common/scratch.h"
#include "bench/service/cpu_pairs.h"
#include "formats/arena.h"
#include "formats/base/crc32c.h"

namespace bench {

namespace {

constexpr int kRewrites = 3;
constexpr uint64_t kSweepFilesMax = 2;

// Mean speed of `times` runs of the same number of bytes each, in bytes per second.
template <typename Run>
ckpt::Result<double> of_runs(int times, Run run) {
  double seconds_per_byte = 0;
  for (int i = 0; i < times; ++i) {
    CKPT_ASSIGN(const double speed, run());
    seconds_per_byte += 1 / speed;
  }
  return times / seconds_per_byte;
}

ckpt::Result<double> own_clock() { return own_cpu_seconds(); }

class SaveBench {
 public:
  explicit SaveBench(const SaveOptions& options) : options_(options), bytes_(options.shape.bytes) {}

  ckpt::Result<nlohmann::json> run();

 private:
  ckpt::Status find_limit();
  ckpt::Result<double> write_files(const RawConfig& config);
  ckpt::Result<double> write_limit();
  ckpt::Status crc_pass();
  ckpt::Result<double> save();
  uint64_t sample_bytes() const {
    return bytes_ * static_cast<uint64_t>(options_.saves_per_sample);
  }
  nlohmann::json cpu() const;

  const SaveOptions& options_;
  const uint64_t bytes_;
  ckpt::ArenaMapping pool_;
  std::unique_ptr<LimitFiles> limit_files_;
  RawConfig best_;
  std::vector<double> rewrites_;
  std::unique_ptr<SaveRun> engine_;
  CpuMeter loop_cpu_;
  CpuMeter crc_cpu_;
  CpuMeter engine_cpu_;
  CpuMeter trainers_cpu_;
};

ckpt::Status SaveBench::find_limit() {
  CKPT_ASSIGN(pool_, make_raw_pool());
  const auto write = [&](const RawConfig& config) {
    if (limit_files_->there() >= kSweepFilesMax) limit_files_->clear();
    return raw_write(limit_files_->next(), bytes_, config, pool_.bytes());
  };
  CKPT_ASSIGN(best_, sweep(write, say));
  limit_files_->clear();
  say(fmt::format("limit: {}", best_.name()));
  rewrites_.reserve(kRewrites);
  for (int i = 0; i < kRewrites; ++i) {
    CKPT_ASSIGN(const double speed,
                raw_rewrite(limit_files_->next(), bytes_, best_, pool_.bytes()));
    rewrites_.push_back(speed);
  }
  limit_files_->clear();
  return {};
}

ckpt::Result<double> SaveBench::write_files(const RawConfig& config) {
  return of_runs(options_.saves_per_sample,
                 [&] { return raw_write(limit_files_->next(), bytes_, config, pool_.bytes()); });
}

// CPU time is measured on our own loop even if fio is the limit: starting and ending fio costs CPU
// time besides the writes.
ckpt::Result<double> SaveBench::write_limit() {
  if (!best_.fio) return loop_cpu_.meter(own_clock, [&] { return write_files(best_); });
  RawConfig own = best_;
  own.fio = false;
  CKPT_TRY(loop_cpu_.meter(own_clock, [&] { return write_files(own); }));
  return write_files(best_);
}

// CRC32C over the number of bytes of a sample.
ckpt::Status SaveBench::crc_pass() {
  return crc_cpu_.meter(own_clock, [&]() -> ckpt::Status {
    for (uint64_t done = 0; done < sample_bytes();) {
      const uint64_t length = std::min<uint64_t>(pool_.bytes().size(), sample_bytes() - done);
      // volatile keeps the compiler from dropping the unused sum.
      volatile uint32_t sum = ckpt::base::crc32c(pool_.bytes().first(length));
      (void)sum;
      done += length;
    }
    return {};
  });
}

ckpt::Result<double> SaveBench::save() {
  CKPT_TRY(crc_pass());
  const auto engine_clock = [&]() -> ckpt::Result<double> {
    CKPT_ASSIGN(const Usage usage, engine_->usage());
    return usage.cpu_seconds;
  };
  const auto saves = [&] {
    return of_runs(options_.saves_per_sample, [&] { return engine_->run(); });
  };
  const auto both = [&] { return trainers_cpu_.meter(own_clock, saves); };
  return engine_cpu_.meter(engine_clock, both);
}

// The bound applies to the CPU time of the writer. The CPU time of the trainers, their copy, is
// reported separately.
nlohmann::json SaveBench::cpu() const {
  nlohmann::json cpu = cpu_json({.loop = loop_cpu_.per_gb(sample_bytes()),
                                 .crc = crc_cpu_.per_gb(sample_bytes()),
                                 .engine = engine_cpu_.per_gb(sample_bytes())});
  if (!options_.engine_only) {
    cpu["trainers_seconds_per_gb"] = median(trainers_cpu_.per_gb(sample_bytes()));
  }
  return cpu;
}

ckpt::Result<nlohmann::json> SaveBench::run() {
  const SaveShape& shape = options_.shape;
  CKPT_ASSIGN(const ScratchDirectory scratch, ScratchDirectory::make(options_.directory));
  limit_files_ = std::make_unique<LimitFiles>(scratch.path());
  CKPT_TRY(find_limit());
  CKPT_ASSIGN(engine_, options_.engine_only ? open_engine_save(options_.directory, shape)
                                            : open_daemon_save(options_.directory, shape));
  const auto prepare = [&] {
    if (!engine_->full()) return ckpt::Status();
    limit_files_->clear();
    return engine_->renew();
  };
  CKPT_ASSIGN(const Paired paired,
              measure_pairs(options_.pairs, {.prepare = prepare,
                                             .limit = [&] { return write_limit(); },
                                             .engine = [&] { return save(); },
                                             .progress = say}));
  const Outcome outcome{.bench = options_.bench,
                        .shape = {{"bytes", shape.bytes},
                                  {"sessions", shape.sessions},
                                  {"slab_bytes", shape.slab_bytes},
                                  {"fragment_bytes", shape.fragment_bytes},
                                  {"fragments", shape.bytes / shape.fragment_bytes},
                                  {"saves_per_sample", options_.saves_per_sample},
                                  {"io", shape.engine},
                                  {"path", options_.engine_only ? "engine" : "daemon"}},
                        .unit = "bytes/s",
                        .limit_name = best_.name(),
                        .pass_ratio = options_.pass_ratio};
  nlohmann::json document = to_json(outcome, paired, machine(options_.directory));
  document["rewrite"] = median(rewrites_);
  document["cpu"] = cpu();
  CKPT_ASSIGN(const Usage usage, engine_->usage());
  document["resident_bytes_peak"] = usage.resident_bytes_peak;
  return document;
}

}  // namespace

ckpt::Result<nlohmann::json> bench_save(const SaveOptions& options) {
  return SaveBench(options).run();
}

std::string save_text(const nlohmann::json& document) {
  return to_text(document) + cpu_text(document.at("cpu"));
}

}  // namespace bench
