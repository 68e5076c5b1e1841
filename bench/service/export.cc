#include "bench/service/export.h"

#include <fmt/format.h>

#include <ckpt/client.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "bench/common/control.h"
#include "bench/common/daemon_process.h"
#include "bench/common/report.h"
#include "bench/common/scratch.h"
#include "bench/common/usage.h"
#include "trainer/checkpoint/client_status.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;
using moetrain::to_result;
using moetrain::to_status;
using nlohmann::json;

namespace {

constexpr uint64_t kExportArenaBytes = 256ull << 20;  // the daemon's arenas, which cache units
constexpr uint64_t kExportSlabBytes = 8ull << 20;
constexpr uint64_t kExportSlabs = 8;  // slabs of the trainer, which streams
constexpr uint32_t kExportTimeoutMs = 60'000;

// Saves a run of random units, each with one tensor, in one commit.
Status save_run(const std::string& socket, uint64_t bytes, uint64_t unit_bytes) {
  ckpt::client::OpenOptions open;
  open.socket = "unix:" + socket;
  open.run = "bench";
  open.arena_bytes = kExportSlabs * kExportSlabBytes;
  open.slab_bytes = kExportSlabBytes;
  CKPT_ASSIGN(auto session, to_result(ckpt::client::Session::open(open)));
  const auto count = static_cast<uint32_t>(bytes / unit_bytes);
  std::vector<ckpt::client::UnitInfo> units;
  units.reserve(count);
  ckpt::client::SnapshotOptions plan;
  plan.step = 1;
  plan.streams = true;
  plan.units.reserve(count);
  plan.fragments.reserve(count);
  for (uint32_t unit = 0; unit < count; ++unit) {
    const std::string name = fmt::format("layers.{}", unit);
    units.push_back({name, -1, -1, "", unit_bytes, {{name + ".w", "U8", {unit_bytes}, 0}}});
    plan.units.push_back(unit);
    plan.fragments.push_back({0, unit, 0, unit_bytes});
  }
  CKPT_TRY(to_status(session.register_units(units, R"({"hf_config":{}})")));
  ckpt::client::JoinOptions alone;
  alone.size = 1;
  CKPT_TRY(to_result(session.join(alone)));
  CKPT_ASSIGN(auto snapshot, to_result(session.begin(plan)));
  std::vector<std::byte> state(unit_bytes);
  for (const uint32_t unit : plan.units) {
    fill_random(state, unit + 1);
    CKPT_TRY(to_status(snapshot.write(unit, 0, state.data(), unit_bytes)));
  }
  CKPT_TRY(to_status(snapshot.end()));
  CKPT_TRY(to_status(snapshot.wait(CKPT_LEVEL_DURABLE, kExportTimeoutMs)));
  return to_status(session.leave());
}

Result<bool> same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::ifstream first(a, std::ios::binary);
  std::ifstream second(b, std::ios::binary);
  std::vector<char> of_first(1 << 20);
  std::vector<char> of_second(1 << 20);
  while (first && second) {
    first.read(of_first.data(), static_cast<std::streamsize>(of_first.size()));
    second.read(of_second.data(), static_cast<std::streamsize>(of_second.size()));
    if (first.gcount() != second.gcount()) return false;
    if (std::memcmp(of_first.data(), of_second.data(), static_cast<size_t>(first.gcount())) != 0) {
      return false;
    }
  }
  if (first.eof() && second.eof()) return true;
  return make_error(ErrorCode::kIo, "{}: cannot be read", a.string());
}

Result<bool> same_folders(const std::string& a, const std::string& b) {
  size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(a)) {
    ++files;
    CKPT_ASSIGN(const bool same, same_file(file.path(), b / file.path().filename()));
    if (!same) return false;
  }
  return files > 0;
}

// Appends a row for each action; true if both exports are identical.
Result<bool> round(const ExportOptions& options, uint64_t bytes, json& rows) {
  CKPT_ASSIGN(const auto daemon, DaemonProcess::start({.directory = options.directory,
                                                       .arena_bytes = kExportArenaBytes,
                                                       .engine = options.engine}));
  const std::string first = daemon->scratch() + "/first";
  const std::string again = daemon->scratch() + "/again";
  const std::string shard = std::to_string(options.shard_bytes);
  CKPT_TRY(save_run(daemon->socket(), bytes, options.unit_bytes));
  const std::vector<std::pair<std::string, std::vector<std::string>>> actions = {
      {"export", {"export", "bench@1", "--out", first, "--resumable", "--shard-bytes", shard}},
      {"import", {"import", first, "--run", "copy"}},
      {"export again",
       {"export", "copy@1", "--out", again, "--resumable", "--shard-bytes", shard}}};
  for (const auto& [action, arguments] : actions) {
    settle(options.directory);
    CKPT_ASSIGN(const CtlRun run, run_ctl(*daemon, arguments));
    CKPT_ASSIGN(const Usage of_daemon, usage_of(daemon->pid()));
    say(fmt::format("{} of {} MiB: {:.1f} s", action, bytes >> 20, run.seconds));
    rows.push_back({{"bytes", bytes},
                    {"action", action},
                    {"seconds", run.seconds},
                    {"bytes_per_second", static_cast<double>(bytes) / run.seconds},
                    {"resident_bytes_peak", run.resident_bytes_peak},
                    {"daemon_resident_bytes_peak", of_daemon.resident_bytes_peak}});
  }
  return same_folders(first, again);
}

}  // namespace

Result<json> bench_export(const ExportOptions& options) {
  json rows = json::array();
  bool same = true;
  for (const uint64_t bytes : {options.small_bytes, options.bytes}) {
    CKPT_ASSIGN(const bool round_same, round(options, bytes, rows));
    same = same && round_same;
  }
  return json{{"bench", "export"},
              {"machine", machine(options.directory)},
              {"shape",
               {{"unit_bytes", options.unit_bytes},
                {"shard_bytes", options.shard_bytes},
                {"daemon_arena_bytes", kExportArenaBytes},
                {"io", options.engine}}},
              {"rows", std::move(rows)},
              {"same", same}};
}

std::string export_text(const json& document) {
  std::string text = fmt::format("{:>8}  {:<13}{:>9}{:>11}{:>12}{:>14}\n", "MiB", "", "seconds",
                                 "MiB/s", "peak MiB", "daemon's MiB");
  const auto mib = [](const json& bytes) { return bytes.get<double>() / (1 << 20); };
  for (const json& row : document.at("rows")) {
    text +=
        fmt::format("{:>8.0f}  {:<13}{:>9.1f}{:>11.0f}{:>12.0f}{:>14.0f}\n", mib(row.at("bytes")),
                    row.at("action").get<std::string>(), row.at("seconds").get<double>(),
                    mib(row.at("bytes_per_second")), mib(row.at("resident_bytes_peak")),
                    mib(row.at("daemon_resident_bytes_peak")));
  }
  return text + (document.at("same") == true ? "what came back is the same, byte for byte\n"
                                             : "WHAT CAME BACK IS NOT THE SAME\n");
}

}  // namespace bench
