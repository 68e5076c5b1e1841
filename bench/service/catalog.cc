#include "bench/service/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ckpt/client.hpp>
#include <csignal>
#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include "bench/common/control.h"
#include "bench/common/daemon_process.h"
#include "bench/common/report.h"
#include "bench/common/usage.h"
#include "trainer/checkpoint/client_status.h"

namespace bench {

using ckpt::Result;
using ckpt::Status;
using moetrain::to_result;
using moetrain::to_status;
using nlohmann::json;

namespace {

constexpr uint64_t kCatalogUnitBytes = 256;
constexpr uint64_t kCatalogSlabBytes = 16ull << 20;
constexpr uint64_t kCatalogSlabs = 4;
constexpr uint32_t kExpertsPerLayer = 256;
constexpr uint32_t kCatalogTimeoutMs = 120'000;
constexpr double kQuestionMs = 50;
constexpr double kStartMs = 2'000;
constexpr const char* kCatalogRun = "large";
constexpr const char* kRemovedRun = "removed";
constexpr const char* kPartialRun = "partial";  // one full commit, then small ones
constexpr uint32_t kUnitsOfASmallCommit = 2;

using Work = std::function<Status()>;

Result<double> ms_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  CKPT_TRY(work());
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  return taken.count();
}

Result<double> median_ms(uint32_t repeats, const Work& work) {
  std::vector<double> times;
  times.reserve(repeats);
  for (uint32_t i = 0; i < repeats; ++i) {
    CKPT_ASSIGN(const double ms, ms_of(work));
    times.push_back(ms);
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

uint64_t bytes_below(const std::string& directory) {
  uint64_t bytes = 0;
  std::error_code gone;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory, gone)) {
    const uint64_t size = entry.is_regular_file(gone) ? entry.file_size(gone) : 0;
    if (!gone) bytes += size;
  }
  return bytes;
}

// Units of a deep model: weights and optimizer state of its experts.
std::vector<ckpt::client::UnitInfo> units_of(uint32_t count) {
  std::vector<ckpt::client::UnitInfo> units;
  units.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t layer = i / (2 * kExpertsPerLayer);
    const uint32_t expert = i / 2 % kExpertsPerLayer;
    const std::string part = i % 2 == 0 ? "weights" : "optimizer";
    const std::string name = fmt::format("layers.{}.experts.{}.{}", layer, expert, part);
    units.push_back({name,
                     static_cast<int32_t>(layer),
                     static_cast<int32_t>(expert),
                     part,
                     kCatalogUnitBytes,
                     {{name + ".w", "F32", {kCatalogUnitBytes / sizeof(float)}, 0}}});
  }
  return units;
}

class History {
 public:
  explicit History(const CatalogOptions& options) : options_(options) {}

  Result<json> measure() {
    CKPT_ASSIGN(daemon_, DaemonProcess::start({.directory = options_.directory,
                                               .arena_bytes = kCatalogSlabs * kCatalogSlabBytes,
                                               .engine = options_.engine}));
    CKPT_TRY(save());
    CKPT_TRY(ask());
    CKPT_TRY(restart());
    CKPT_TRY(rebuild());
    const uint64_t journal_bytes = bytes_below(daemon_->data() + "/journal");
    const uint64_t catalog_bytes = bytes_below(daemon_->data() + "/catalog");
    CKPT_TRY(prune(kCatalogRun, options_.commits / 6));
    CKPT_TRY(remove());
    CKPT_ASSIGN(const Usage usage, usage_of(daemon_->pid()));
    if (options_.small_commits > 0) {
      CKPT_TRY(save_partial());
      CKPT_TRY(ask_partial());
      CKPT_TRY(prune(kPartialRun, options_.small_commits / 20));
    }
    return json{{"bench", "catalog"},
                {"machine", machine(options_.directory)},
                {"shape",
                 {{"units", options_.units},
                  {"commits", options_.commits},
                  {"small_commits", options_.small_commits},
                  {"unit_bytes", kCatalogUnitBytes},
                  {"io", options_.engine}}},
                {"versions", versions()},
                {"rows", std::move(rows_)},
                {"versions_per_second", versions_per_second_},
                {"resident_bytes", resident_bytes_},
                {"resident_bytes_peak", std::max(resident_bytes_peak_, usage.resident_bytes_peak)},
                {"journal_bytes", journal_bytes},
                {"catalog_bytes", catalog_bytes}};
  }

 private:
  uint64_t versions() const { return uint64_t{options_.units} * options_.commits; }

  void add(const std::string& what, double ms, double limit_ms) {
    say(fmt::format("{}: {:.1f} ms", what, ms));
    rows_.push_back({{"what", what}, {"ms", ms}, {"limit_ms", nullptr}, {"verdict", nullptr}});
    if (limit_ms == 0) return;
    rows_.back()["limit_ms"] = limit_ms;
    rows_.back()["verdict"] = ms <= limit_ms ? "pass" : "fail";
  }

  Result<ckpt::client::Session> open(bool control, const char* run = kCatalogRun) const {
    ckpt::client::OpenOptions open;
    open.socket = "unix:" + daemon_->socket();
    open.run = run;
    open.control = control;
    open.arena_bytes = kCatalogSlabs * kCatalogSlabBytes;
    open.slab_bytes = kCatalogSlabBytes;
    return to_result(ckpt::client::Session::open(open));
  }

  // Opens a trainer of the run that is alone in its group.
  Result<ckpt::client::Session> train(const char* run) const {
    CKPT_ASSIGN(auto session, open(false, run));
    CKPT_TRY(to_status(session.register_units(units_of(options_.units))));
    ckpt::client::JoinOptions alone;
    alone.size = 1;
    CKPT_TRY(to_result(session.join(alone)));
    return session;
  }

  static ckpt::client::SnapshotOptions plan_of(uint32_t first, uint32_t end) {
    ckpt::client::SnapshotOptions plan;
    plan.units.reserve(end - first);
    plan.fragments.reserve(end - first);
    for (uint32_t unit = first; unit < end; ++unit) {
      plan.units.push_back(unit);
      plan.fragments.push_back({0, unit, 0, kCatalogUnitBytes});
    }
    return plan;
  }

  Status save() {
    CKPT_ASSIGN(const double ms, save_whole(kCatalogRun));
    add(fmt::format("save {} units, to durable", options_.units), ms, 0);
    return {};
  }

  // Commits all units as often as options_.commits says; returns the median time in ms.
  Result<double> save_whole(const char* run) {
    CKPT_ASSIGN(auto session, train(run));
    ckpt::client::SnapshotOptions plan = plan_of(0, options_.units);
    CKPT_ASSIGN(const double ms, median_ms(options_.commits, [&]() -> Status {
                  plan.step += 100;
                  return save_once(session, plan);
                }));
    CKPT_TRY(to_status(session.leave()));
    return ms;
  }

  static Status save_once(ckpt::client::Session& session,
                          const ckpt::client::SnapshotOptions& plan) {
    CKPT_ASSIGN(auto snapshot, to_result(session.begin(plan)));
    std::vector<uint32_t> bytes(kCatalogUnitBytes / sizeof(uint32_t));
    for (const uint32_t unit : plan.units) {
      std::ranges::fill(bytes, static_cast<uint32_t>(plan.step) * 1'000'003u + unit);
      CKPT_TRY(to_status(snapshot.write(unit, 0, bytes.data(), kCatalogUnitBytes)));
    }
    CKPT_TRY(to_status(snapshot.end()));
    return to_status(snapshot.wait(CKPT_LEVEL_DURABLE, kCatalogTimeoutMs));
  }

  // Times questions from their first byte to the last byte of the answer, on an open session and by
  // ckptctl.
  Status ask() {
    CKPT_ASSIGN(auto session, open(true));
    const std::string newest = fmt::format("{}@{}", kCatalogRun, uint64_t{options_.commits} * 100);
    const std::string middle =
        fmt::format("{}@{}", kCatalogRun, uint64_t{options_.commits + 1} / 2 * 100);
    const std::string unit = units_of(options_.units / 2 + 1).back().name;
    const std::vector<std::pair<std::string, json>> questions = {
        {"log", {{"target", kCatalogRun}}},
        {"show", {{"target", newest}}},
        {"show", {{"target", middle}}},
        {"experts", {{"target", newest}}},
        {"unit", {{"target", kCatalogRun}, {"unit", unit}}},
        {"diff", {{"from", middle}, {"to", newest}}}};
    for (const auto& [verb, arguments] : questions) {
      CKPT_TRY(ask_daemon(session, verb, arguments, name_of(arguments)));
    }
    // Plans a prune without running it; planning reads the commits that the prune would keep.
    for (const uint32_t all : {options_.commits / 6, options_.commits - 1}) {
      CKPT_TRY(ask_prune_plan(session, kCatalogRun, std::max(all, 1u)));
    }
    for (const char* verb : {"log", "show"}) {
      const std::vector<std::string> command = {
          verb, verb == std::string("log") ? kCatalogRun : newest, "--json"};
      CKPT_ASSIGN(const double ms, median_ms(options_.repeats, [&]() -> Status {
                    CKPT_TRY(run_ctl(*daemon_, command));
                    return {};
                  }));
      add(fmt::format("ckptctl {} {} --json", command[0], command[1]), ms, 0);
    }
    return {};
  }

  Status ask_prune_plan(ckpt::client::Session& session, const std::string& run, uint32_t kept) {
    return ask_daemon(session, "prune",
                      {{"target", run}, {"rules", {{"last", kept}}}, {"dry_run", true}},
                      fmt::format("{} --keep-last {} --dry-run", run, kept));
  }

  Status ask_daemon(ckpt::client::Session& session, const std::string& verb, const json& arguments,
                    const std::string& name) {
    uint64_t bytes = 0;
    CKPT_ASSIGN(const Usage before, usage_of(daemon_->pid()));
    CKPT_ASSIGN(const double ms, median_ms(options_.repeats, [&]() -> Status {
                  return answered(session, verb, arguments, &bytes);
                }));
    CKPT_ASSIGN(const Usage after, usage_of(daemon_->pid()));
    const bool promised = verb == "log" || verb == "show";
    add(fmt::format("{} {}, by the daemon", verb, name), ms, promised ? kQuestionMs : 0);
    rows_.back()["bytes"] = bytes;
    rows_.back()["cpu_ms"] = (after.cpu_seconds - before.cpu_seconds) * 1e3 / options_.repeats;
    return {};
  }

  static std::string name_of(const json& arguments) {
    std::string name;
    for (const json& value : arguments)
      name += (name.empty() ? "" : " ") + value.get<std::string>();
    return name;
  }

  static Status answered(ckpt::client::Session& session, const std::string& verb,
                         const json& arguments, uint64_t* bytes) {
    CKPT_ASSIGN(const auto answer,
                to_result(session.query(verb, arguments.dump(), kCatalogTimeoutMs)));
    *bytes = answer.json.size();
    if (answer.exit_code == 0) return {};
    return ckpt::make_error(ckpt::ErrorCode::kFailedPrecondition, "{}: {}", verb, answer.json);
  }

  // Time from fork to `ready`, which wait_ready polls every 10 ms.
  Status restart() {
    CKPT_ASSIGN(const Usage before, usage_of(daemon_->pid()));
    resident_bytes_peak_ = before.resident_bytes_peak;
    for (const auto& [signal, how] :
         {std::pair{SIGTERM, "SIGTERM"}, std::pair{SIGKILL, "SIGKILL"}}) {
      daemon_->stop(signal);
      CKPT_ASSIGN(const double ms, ms_of([&] { return daemon_->restart(); }));
      add(fmt::format("start after {}", how), ms, kStartMs);
    }
    CKPT_ASSIGN(const Usage after, usage_of(daemon_->pid()));
    resident_bytes_ = after.resident_bytes_peak;
    return {};
  }

  Status rebuild() {
    CKPT_ASSIGN(const CtlRun done, run_ctl(*daemon_, {"rebuild"}));
    add("ckptctl rebuild", done.seconds * 1e3, 0);
    versions_per_second_ = static_cast<double>(versions()) / done.seconds;
    return {};
  }

  // Prunes most of a history, including journal and catalog.
  Status prune(const char* run, uint32_t keep) {
    const std::string kept = std::to_string(std::max(keep, 1u));
    CKPT_ASSIGN(const CtlRun done, run_ctl(*daemon_, {"prune", run, "--keep-last", kept, "--yes"}));
    add(fmt::format("ckptctl prune {} --keep-last {}", run, kept), done.seconds * 1e3, 0);
    return {};
  }

  // Removes a whole history.
  Status remove() {
    CKPT_TRY(save_whole(kRemovedRun));
    CKPT_ASSIGN(const CtlRun done, run_ctl(*daemon_, {"rm", kRemovedRun, "--yes"}));
    add(fmt::format("ckptctl rm {}", kRemovedRun), done.seconds * 1e3, 0);
    return {};
  }

  // A history of partial snapshots: for most units, the newest version is as old as the run.
  Status save_partial() {
    CKPT_ASSIGN(auto session, train(kPartialRun));
    ckpt::client::SnapshotOptions plan = plan_of(0, options_.units);
    plan.step = 1;
    CKPT_TRY(save_once(session, plan));
    CKPT_ASSIGN(const double ms, median_ms(options_.small_commits, [&]() -> Status {
                  const auto step = static_cast<uint32_t>(plan.step + 1);
                  const uint32_t pairs = options_.units / kUnitsOfASmallCommit;
                  const uint32_t first = step % pairs * kUnitsOfASmallCommit;
                  plan = plan_of(first, first + kUnitsOfASmallCommit);
                  plan.step = step;
                  return save_once(session, plan);
                }));
    add(fmt::format("save {} units, to durable", kUnitsOfASmallCommit), ms, 0);
    return to_status(session.leave());
  }

  Status ask_partial() {
    CKPT_ASSIGN(auto control, open(true));
    const std::string newest = fmt::format("{}@{}", kPartialRun, options_.small_commits + 1);
    const std::string middle = fmt::format("{}@{}", kPartialRun, (options_.small_commits + 1) / 2);
    const std::vector<std::pair<std::string, json>> questions = {
        {"log", {{"target", kPartialRun}}},
        {"show", {{"target", newest}}},
        {"experts", {{"target", newest}}},
        {"diff", {{"from", middle}, {"to", newest}}}};
    for (const auto& [verb, arguments] : questions) {
      CKPT_TRY(ask_daemon(control, verb, arguments, name_of(arguments)));
    }
    for (const uint32_t kept : {options_.small_commits / 20, options_.small_commits - 1}) {
      CKPT_TRY(ask_prune_plan(control, kPartialRun, std::max(kept, 1u)));
    }
    return {};
  }

  const CatalogOptions& options_;
  std::unique_ptr<DaemonProcess> daemon_;
  json rows_ = json::array();
  double versions_per_second_ = 0;
  uint64_t resident_bytes_ = 0;
  uint64_t resident_bytes_peak_ = 0;
};

}  // namespace

Result<json> bench_catalog(const CatalogOptions& options) { return History(options).measure(); }

std::string catalog_text(const json& document) {
  std::string text;
  for (const json& row : document.at("rows")) {
    const json& limit = row.at("limit_ms");
    text += fmt::format("{:>10.1f} ms  {}", row.at("ms").get<double>(),
                        row.at("what").get<std::string>());
    if (row.contains("bytes")) {
      text += fmt::format(", {} KiB, {:.0f} ms of processor time",
                          row.at("bytes").get<uint64_t>() >> 10, row.at("cpu_ms").get<double>());
    }
    if (!limit.is_null()) {
      text += fmt::format(", to be under {:.0f}: {}", limit.get<double>(),
                          row.at("verdict").get<std::string>());
    }
    text += '\n';
  }
  const auto mib = [&](const char* field) { return document.at(field).get<uint64_t>() >> 20; };
  return text + fmt::format(
                    "{} versions; rebuilt at {:.0f} a second; memory {} MiB after a start, {} "
                    "MiB at most; journal {} MiB, catalog {} MiB\n",
                    document.at("versions").get<uint64_t>(),
                    document.at("versions_per_second").get<double>(), mib("resident_bytes"),
                    mib("resident_bytes_peak"), mib("journal_bytes"), mib("catalog_bytes"));
}

}  // namespace bench
