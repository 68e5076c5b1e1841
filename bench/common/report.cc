#include "bench/common/report.h"

#include <fmt/format.h>
#include <sys/statfs.h>
#include <sys/utsname.h>

#include <cstdio>
#include <fstream>

#include "formats/base/console.h"

namespace bench {

namespace {

std::string cpu_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    return colon == std::string::npos ? line : line.substr(colon + 2);
  }
  return "unknown";
}

std::string file_system(const std::string& directory) {
  struct statfs info {};
  if (::statfs(directory.c_str(), &info) != 0) return "unknown";
  switch (static_cast<unsigned long>(info.f_type)) {
    case 0xef53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683e:
      return "btrfs";
    case 0x01021994:
      return "tmpfs";
    case 0x794c7630:
      return "overlayfs";
    default:
      return fmt::format("{:#x}", static_cast<unsigned long>(info.f_type));
  }
}

}  // namespace

nlohmann::json machine(const std::string& directory) {
  utsname kernel{};
  ::uname(&kernel);
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return {{"cpu", cpu_name()},
          {"cores", ::sysconf(_SC_NPROCESSORS_ONLN)},
          {"memory_bytes", static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page},
          {"kernel", kernel.release},
          {"file_system", file_system(directory)}};
}

nlohmann::json to_json(const Outcome& outcome, const Paired& paired,
                       const nlohmann::json& on_machine) {
  nlohmann::json runs = nlohmann::json::array();
  for (size_t i = 0; i < paired.limit.size(); ++i) {
    runs.push_back({{"limit", paired.limit[i]},
                    {"value", paired.engine[i]},
                    {"ratio", paired.engine[i] / paired.limit[i]}});
  }
  return {{"bench", outcome.bench},
          {"machine", on_machine},
          {"shape", outcome.shape},
          {"value", median(paired.engine)},
          {"unit", outcome.unit},
          {"limit", median(paired.limit)},
          {"limit_name", outcome.limit_name},
          {"ratio_to_limit", paired.ratio},
          {"ratio_interval", {paired.ratio_interval.low, paired.ratio_interval.high}},
          {"limit_self_ratio", paired.self_ratio},
          {"limit_self_interval", {paired.self_interval.low, paired.self_interval.high}},
          {"pass_ratio", outcome.pass_ratio},
          {"verdict", verdict(paired, outcome.pass_ratio, outcome.more_is_better)},
          {"pairs_added", paired.pairs_added},
          {"runs", runs}};
}

std::string to_text(const nlohmann::json& document) {
  const int added = document["pairs_added"].get<int>();
  return fmt::format(
      "{}: {:.4g} {} against {:.4g} ({})\n"
      "ratio {:.3f} [{:.3f}, {:.3f}], limit against itself {:.3f} [{:.3f}, {:.3f}], {} pairs{}: "
      "{}\n",
      document["bench"].get<std::string>(), document["value"].get<double>(),
      document["unit"].get<std::string>(), document["limit"].get<double>(),
      document["limit_name"].get<std::string>(), document["ratio_to_limit"].get<double>(),
      document["ratio_interval"][0].get<double>(), document["ratio_interval"][1].get<double>(),
      document["limit_self_ratio"].get<double>(), document["limit_self_interval"][0].get<double>(),
      document["limit_self_interval"][1].get<double>(), document["runs"].size(),
      added == 0 ? "" : fmt::format(" ({} of them added)", added),
      document["verdict"].get<std::string>());
}

void say(const std::string& line) { ckpt::base::print_stderr("{}\n", line); }

}  // namespace bench
