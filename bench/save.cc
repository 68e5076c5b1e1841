#include "bench/save.h"

#include "bench/raw_disk.h"
#include "bench/report.h"
#include "bench/scratch.h"
#include "ckptd/io/aligned_buffer.h"

namespace bench {

namespace {

// Memory the raw loop writes from: large enough that no cache helps.
constexpr uint64_t kPoolBytes = 512ull << 20;

void say(const std::string& line) { fmt::print(stderr, "{}\n", line); }

}  // namespace

ckpt::Result<nlohmann::json> bench_save(const SaveOptions& options) {
  const SaveShape& shape = options.shape;
  CKPT_ASSIGN(const ScratchDirectory scratch, ScratchDirectory::make(options.directory));
  ckptd::AlignedBuffer pool(std::min(kPoolBytes, shape.bytes));
  fill_random(pool.bytes(), 1);
  CKPT_ASSIGN(const RawConfig best, sweep(scratch.path(), shape.bytes, pool.bytes(), say));
  say(fmt::format("limit: {}", best.name()));

  CKPT_ASSIGN(const auto engine, options.engine_only ? open_engine_save(options.directory, shape)
                                                     : open_daemon_save(options.directory, shape));
  CKPT_ASSIGN(
      const Paired paired,
      measure_pairs(
          options.pairs,
          {.prepare = [&] { return engine->prepare(); },
           .limit = [&] { return raw_write(scratch.path(), shape.bytes, best, pool.bytes()); },
           .engine = [&] { return engine->run(); },
           .progress = say}));
  const Outcome outcome{.bench = "save",
                        .shape = {{"bytes", shape.bytes},
                                  {"sessions", shape.sessions},
                                  {"slab_bytes", shape.slab_bytes},
                                  {"fragment_bytes", shape.fragment_bytes},
                                  {"io", shape.engine},
                                  {"path", options.engine_only ? "engine" : "daemon"}},
                        .unit = "bytes/s",
                        .limit_name = best.name(),
                        .pass_ratio = 0.80};
  return to_json(outcome, paired, machine(options.directory));
}

}  // namespace bench
