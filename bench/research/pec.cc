#include "bench/research/pec.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "bench/common/control.h"
#include "bench/common/daemon_process.h"
#include "bench/common/paired.h"
#include "bench/common/raw_disk.h"
#include "bench/common/report.h"
#include "bench/common/scratch.h"
#include "bench/research/pec_plan.h"
#include "bench/research/pec_ranks.h"
#include "formats/base/checked.h"
#include "formats/base/console.h"
#include "formats/base/parse.h"

namespace bench {

using ckpt::Result;
using nlohmann::json;

namespace {

constexpr uint64_t kSlabBytes = 16ull << 20;
constexpr uint64_t kLimitBytesMax = 2ull << 30;
constexpr uint64_t kSegmentsRoom = 3ull << 30;

// The model, its units, and the bytes that a full save of the model writes.
struct Subject {
  const PecModel& model;
  std::vector<PecUnit> units;
  PecDenominators usual;
  uint64_t full_disk_bytes = 0;  // measured in the row with all experts
};

double per(double part, uint64_t whole) {
  return whole > 0 ? part / static_cast<double>(whole) : 0;
}

// Write rate of the disk alone, measured next to this row: a file of the save's size, up to 2 GiB.
Result<double> disk_limit(uint64_t bytes, const std::string& folder) {
  const RawConfig config;
  ckptd::AlignedBuffer pool(64ull << 20);
  fill_random(pool.bytes(), 7);
  const uint64_t whole =
      ckpt::base::align_up(std::min(bytes, kLimitBytesMax), config.request_bytes);
  LimitFiles files(folder);
  auto speed = raw_write(files.next(), whole, config, pool.bytes());
  files.clear();
  return speed;
}

// Reclaims older saves that no view needs, so that the disk has room for all repeats. Not timed;
// returns when the disk has settled, so that the next save is not slowed by discards.
ckpt::Status reclaim_older(const DaemonProcess& daemon) {
  CKPT_TRY(run_ctl(daemon, {"prune", kPecRun, "--keep-last", "1", "--yes"}));
  CKPT_TRY(run_ctl(daemon, {"gc"}));
  settle(daemon.data());
  return {};
}

struct Measured {
  std::vector<double> durable_seconds;
  std::vector<double> stall_seconds;
  std::vector<uint64_t> disk_bytes;
  PecRanks::Saved last;
  uint64_t planned_bytes = 0;
  double limit_bytes_per_second = 0;
};

Result<Measured> measure(const PecOptions& options, const Subject& subject, uint32_t k) {
  CKPT_ASSIGN(const auto daemon,
              DaemonProcess::start({.directory = options.directory,
                                    .arena_bytes = options.ranks * options.rank_arena_bytes,
                                    .engine = options.engine}));
  CKPT_ASSIGN(const auto ranks, PecRanks::open({.socket = daemon->socket(),
                                                .ranks = options.ranks,
                                                .arena_bytes = options.rank_arena_bytes,
                                                .slab_bytes = kSlabBytes,
                                                .alarms = options.alarms},
                                               subject.units));
  PecPlanner planner(subject.units, subject.model.moe_layers(), subject.model.experts,
                     options.ranks);
  // The first save is not counted: it waits for the page faults of the arenas.
  CKPT_ASSIGN([[maybe_unused]] const auto first, ranks->save(planner.next(k, options.sharding)));
  Measured measured;
  for (uint32_t repeat = 0; repeat < options.repeats; ++repeat) {
    CKPT_TRY(reclaim_older(*daemon));
    const PecPlan plan = planner.next(k, options.sharding);
    CKPT_ASSIGN(const uint64_t before, ranks->segment_bytes_written());
    CKPT_ASSIGN(measured.last, ranks->save(plan));
    CKPT_ASSIGN(const uint64_t after, ranks->segment_bytes_written());
    measured.planned_bytes = plan.bytes;
    measured.durable_seconds.push_back(measured.last.durable_seconds);
    measured.stall_seconds.push_back(measured.last.stall_seconds);
    measured.disk_bytes.push_back(after - before);
  }
  CKPT_ASSIGN(measured.limit_bytes_per_second, disk_limit(measured.planned_bytes, daemon->data()));
  return measured;
}

json row_json(const Subject& subject, uint32_t k, const Measured& measured) {
  const std::vector<uint64_t>& ranks = measured.last.bytes_by_rank;
  const uint64_t most = *std::max_element(ranks.begin(), ranks.end());
  uint64_t sum = 0;
  for (const uint64_t bytes : ranks) sum += bytes;
  const double mean = static_cast<double>(sum) / static_cast<double>(ranks.size());
  const uint64_t disk = measured.disk_bytes.back();
  const double durable = median(measured.durable_seconds);
  const double speed = static_cast<double>(measured.planned_bytes) / durable;
  const auto busiest = static_cast<double>(most);
  return {
      {"model", subject.model.name},
      {"experts", subject.model.experts},
      {"k", k},
      {"snapshot_bytes", sum},
      {"disk_bytes", disk},
      {"of_full", per(static_cast<double>(disk), subject.full_disk_bytes)},
      {"commits", measured.last.commits},
      {"rank_bytes", {{"max", most}, {"mean", mean}, {"max_to_mean", busiest / mean}}},
      {"rank_max_of",
       {{"even_full", per(busiest, subject.usual.even)},
        {"zero2_full", per(busiest, subject.usual.zero2)},
        {"rank0_dense_full", per(busiest, subject.usual.dense_rank0)}}},
      {"stall_seconds", median(measured.stall_seconds)},
      {"durable_seconds", durable},
      {"runs",
       {{"stall_seconds", measured.stall_seconds}, {"durable_seconds", measured.durable_seconds}}},
      {"value", speed},
      {"unit", "bytes/s"},
      {"limit", measured.limit_bytes_per_second},
      {"limit_name", "a file of the same bytes (at most 2 GiB), io_uring loop, in this row"},
      {"ratio_to_limit", speed / measured.limit_bytes_per_second}};
}

// Bytes per component: of the full state, and of a snapshot with one expert per layer.
json composition_json(const Subject& subject) {
  std::map<Component, uint64_t> bytes;
  for (const PecUnit& unit : subject.units) bytes[unit.component] += unit.bytes;
  json list = json::array();
  for (const auto& [component, all] : bytes) {
    const bool experts = component == Component::kExperts;
    list.push_back({{"model", subject.model.name},
                    {"component", component_name(component)},
                    {"parameters", all / 12},
                    {"bytes", all},
                    {"bytes_at_k1", experts ? all / subject.model.experts : all}});
  }
  return list;
}

json usual_json(const Subject& subject) {
  return {{"model", subject.model.name},
          {"even_full", subject.usual.even},
          {"zero2_full", subject.usual.zero2},
          {"rank0_dense_full", subject.usual.dense_rank0}};
}

std::vector<uint32_t> counts(const PecOptions& options, uint32_t experts) {
  std::vector<uint32_t> ks = {experts};  // first the full save, the baseline of the other rows
  for (uint32_t k = experts / 2; options.ks.empty() && k > 0; k /= 2) ks.push_back(k);
  for (const uint32_t k : options.ks) {
    if (k < experts && std::find(ks.begin(), ks.end(), k) == ks.end()) ks.push_back(k);
  }
  return ks;
}

ckpt::Status check_counts(const PecOptions& options, const PecModel& model) {
  for (const uint32_t k : options.ks) {
    if (k >= 1 && k <= model.experts) continue;
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                            "--k {}: of the {} experts in each layer of {} 1 to {} can be taken", k,
                            model.experts, model.name, model.experts);
  }
  return {};
}

Result<std::vector<const PecModel*>> chosen_models(const PecOptions& options) {
  std::vector<const PecModel*> chosen;
  for (const PecModel& model : pec_models()) {
    const bool wanted =
        std::find(options.models.begin(), options.models.end(), model.name) != options.models.end();
    if (options.models.empty() || wanted) chosen.push_back(&model);
  }
  // A model that is named twice is measured once.
  const std::set<std::string> names(options.models.begin(), options.models.end());
  if (!names.empty() && chosen.size() != names.size()) {
    return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                            "--model: there are gpt-125m-8e and gpt-350m-16e");
  }
  return chosen;
}

// Checks the disk space of the largest row, all experts: two saves and room for segments to grow.
// kResourceExhausted, before anything is measured, if the disk has less.
ckpt::Status check_disk(const PecOptions& options, const PecModel& model) {
  uint64_t full = 0;
  for (const PecUnit& unit : units_of(model)) full += unit.bytes;
  const uint64_t needed = 2 * full + kLimitBytesMax + kSegmentsRoom;
  std::error_code unknown;
  const uint64_t free = std::filesystem::space(options.directory, unknown).available;
  if (unknown || free >= needed) return {};
  return ckpt::make_error(ckpt::ErrorCode::kResourceExhausted,
                          "{}: {} needs {} of disk for its largest row, {} are free",
                          options.directory, model.name, ckpt::base::format_size(needed),
                          ckpt::base::format_size(free));
}

}  // namespace

Result<json> bench_pec(const PecOptions& options) {
  CKPT_ASSIGN(const auto models, chosen_models(options));
  for (const PecModel* model : models) {
    CKPT_TRY(check_counts(options, *model));
    CKPT_TRY(check_disk(options, *model));
  }
  json document = {{"bench", "pec"},
                   {"machine", machine(options.directory)},
                   {"shape",
                    {{"ranks", options.ranks},
                     {"bytes_per_parameter", 12},
                     {"dense_sharding", moetrain::dense_sharding_name(options.sharding)},
                     {"selector", "sequential"},
                     {"rank_arena_bytes", options.rank_arena_bytes},
                     {"slab_bytes", kSlabBytes},
                     {"repeats", options.repeats},
                     {"alarms", options.alarms == CKPT_ALARMS_OFF ? "off" : "warn"},
                     {"io", options.engine}}},
                   {"rows", json::array()},
                   {"composition", json::array()},
                   {"usual_busiest_rank_bytes", json::array()}};
  for (const PecModel* model : models) {
    Subject subject{.model = *model, .units = units_of(*model), .usual = {}};
    subject.usual = pec_denominators(subject.units, model->experts, options.ranks);
    for (const json& part : composition_json(subject)) document["composition"].push_back(part);
    document["usual_busiest_rank_bytes"].push_back(usual_json(subject));
    for (const uint32_t k : counts(options, model->experts)) {
      CKPT_ASSIGN(const Measured measured, measure(options, subject, k));
      if (k == model->experts) subject.full_disk_bytes = measured.disk_bytes.back();
      document["rows"].push_back(row_json(subject, k, measured));
      ckpt::base::print_stderr("{} K={}: durable in {:.2f} s\n", model->name, k,
                               document["rows"].back()["durable_seconds"].get<double>());
    }
  }
  return document;
}

std::string pec_text(const json& document) {
  std::string out =
      fmt::format("{:14} {:>3} {:>10} {:>8} {:>10} {:>9} {:>9} {:>9}\n", "model", "K", "GB on disk",
                  "of full", "rank GB", "max/mean", "stall s", "durable s");
  for (const json& row : document["rows"]) {
    out += fmt::format("{:14} {:>3} {:>10.3f} {:>7.1f}% {:>10.3f} {:>9.3f} {:>9.3f} {:>9.3f}\n",
                       row["model"].get<std::string>(), row["k"].get<int>(),
                       row["disk_bytes"].get<double>() / 1e9, row["of_full"].get<double>() * 100,
                       row["rank_bytes"]["max"].get<double>() / 1e9,
                       row["rank_bytes"]["max_to_mean"].get<double>(),
                       row["stall_seconds"].get<double>(), row["durable_seconds"].get<double>());
  }
  for (const json& row : document["rows"]) {
    const json& of = row["rank_max_of"];
    out += fmt::format(
        "{} K={}: busiest rank {:.1f} % of an even full save, {:.1f} % of ZeRO-2's busiest, "
        "{:.1f} % of rank 0 with all dense; disk at {:.2f} of its limit\n",
        row["model"].get<std::string>(), row["k"].get<int>(), of["even_full"].get<double>() * 100,
        of["zero2_full"].get<double>() * 100, of["rank0_dense_full"].get<double>() * 100,
        row["ratio_to_limit"].get<double>());
  }
  return out;
}

}  // namespace bench
