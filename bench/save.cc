#include "bench/save.h"

#include "bench/raw_disk.h"
#include "bench/report.h"
#include "bench/scratch.h"
#include "formats/arena.h"

namespace bench {

namespace {

// Memory the limit writes from: large enough that no cache helps, and of the same kind as an arena.
// From anonymous memory with huge pages the block layer makes larger requests, which this project's
// first disk took a tenth slower: the limit has to have the better of the two.
constexpr ckpt::ArenaLayout kPool{.slab_bytes = 64ull << 20, .slab_count = 8};

}  // namespace

ckpt::Result<nlohmann::json> bench_save(const SaveOptions& options) {
  const SaveShape& shape = options.shape;
  CKPT_ASSIGN(const ScratchDirectory scratch, ScratchDirectory::make(options.directory));
  CKPT_ASSIGN(const auto pool, ckpt::ArenaMapping::create(kPool));
  fill_random(pool.mapping.bytes(), 1);
  const std::string limit_file = scratch.path() + "/limit";
  CKPT_ASSIGN(const RawConfig best, sweep(limit_file, shape.bytes, pool.mapping.bytes(), say));
  say(fmt::format("limit: {}", best.name()));
  std::vector<double> rewrites;
  for (int i = 0; i < 3; ++i) {
    CKPT_ASSIGN(const double speed,
                raw_rewrite(limit_file, shape.bytes, best, pool.mapping.bytes()));
    rewrites.push_back(speed);
  }

  CKPT_ASSIGN(const auto engine, options.engine_only ? open_engine_save(options.directory, shape)
                                                     : open_daemon_save(options.directory, shape));
  const auto prepare = [&] { return engine->full() ? engine->renew() : ckpt::Status(); };
  const auto limit = [&] { return raw_write(limit_file, shape.bytes, best, pool.mapping.bytes()); };
  CKPT_ASSIGN(const Paired paired,
              measure_pairs(options.pairs, {.prepare = prepare,
                                            .limit = limit,
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
  nlohmann::json document = to_json(outcome, paired, machine(options.directory));
  document["rewrite"] = median(rewrites);
  return document;
}

}  // namespace bench
