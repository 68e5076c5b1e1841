#include "bench/save.h"

#include "bench/raw_disk.h"
#include "bench/report.h"
#include "bench/scratch.h"
#include "formats/arena.h"
#include "formats/base/crc32c.h"

namespace bench {

namespace {

constexpr int kRewrites = 3;
constexpr int kCpuWrites = 5;
constexpr uint64_t kSweepFilesMax = 2;

// CPU seconds of what is timed, over all samples of it.
class CpuMeter {
 public:
  template <typename Clock, typename Work>
  ckpt::Result<double> meter(Clock clock, Work work) {
    CKPT_ASSIGN(const double before, clock());
    CKPT_ASSIGN(const double value, work());
    CKPT_ASSIGN(const double after, clock());
    seconds_ += after - before;
    ++samples_;
    return value;
  }
  double per_gb(uint64_t sample_bytes) const {
    return samples_ == 0 ? 0 : seconds_ / samples_ / (static_cast<double>(sample_bytes) / 1e9);
  }

 private:
  double seconds_ = 0;
  int samples_ = 0;
};

// Bytes per second of `times` runs together, each of as many bytes.
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
  ckpt::Status measure_cpu_of_limit();
  ckpt::Result<double> write_limit();
  ckpt::Result<double> save();
  nlohmann::json cpu() const;

  const SaveOptions& options_;
  const uint64_t bytes_;
  ckpt::ArenaMapping pool_;
  std::unique_ptr<LimitFiles> limit_files_;
  RawConfig best_;
  std::vector<double> rewrites_;
  double crc_seconds_per_gb_ = 0;
  std::unique_ptr<SaveRun> engine_;
  CpuMeter limit_cpu_;
  CpuMeter engine_cpu_;
  CpuMeter trainers_cpu_;
};

ckpt::Status SaveBench::find_limit() {
  CKPT_ASSIGN(auto pool, ckpt::ArenaMapping::create(kRawPool));
  pool_ = std::move(pool.mapping);
  fill_random(pool_.bytes(), 1);
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
  CKPT_TRY(measure_cpu_of_limit());
  const double before = own_cpu_seconds();
  // Kept from being left out: nothing else looks at the sum.
  volatile uint32_t sum = ckpt::base::crc32c(pool_.bytes());
  (void)sum;
  crc_seconds_per_gb_ =
      (own_cpu_seconds() - before) / (static_cast<double>(pool_.bytes().size()) / 1e9);
  return {};
}

// Of our own loop, also where fio is the limit: what it takes to start and end fio is no writing.
ckpt::Status SaveBench::measure_cpu_of_limit() {
  RawConfig own = best_;
  own.fio = false;
  const auto write = [&] { return raw_write(limit_files_->next(), bytes_, own, pool_.bytes()); };
  for (int i = 0; i < kCpuWrites; ++i) {
    CKPT_ASSIGN([[maybe_unused]] const double speed, limit_cpu_.meter(own_clock, write));
    limit_files_->clear();
  }
  return {};
}

ckpt::Result<double> SaveBench::write_limit() {
  return of_runs(options_.saves_per_sample,
                 [&] { return raw_write(limit_files_->next(), bytes_, best_, pool_.bytes()); });
}

ckpt::Result<double> SaveBench::save() {
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

// What is held to 1.5: the writer's time against that of the raw loop and one pass of CRC32C. What
// the trainers spend is their copy, and comes on top.
nlohmann::json SaveBench::cpu() const {
  const uint64_t sample_bytes = bytes_ * static_cast<uint64_t>(options_.saves_per_sample);
  const double engine = engine_cpu_.per_gb(sample_bytes);
  const double limit = limit_cpu_.per_gb(bytes_);
  nlohmann::json cpu = {{"seconds_per_gb", engine},
                        {"limit_seconds_per_gb", limit},
                        {"crc_seconds_per_gb", crc_seconds_per_gb_},
                        {"ratio_to_limit_and_crc", engine / (limit + crc_seconds_per_gb_)}};
  if (!options_.engine_only) cpu["trainers_seconds_per_gb"] = trainers_cpu_.per_gb(sample_bytes);
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

}  // namespace bench
