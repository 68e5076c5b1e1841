#include "trainer/cli/run_parts.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

ConfigSpec config_flags(const RunSpec& spec, const RunFacts& facts) {
  ConfigSpec flags = spec.config;
  if (facts.router_trace) flags.router_trace_crc32c = facts.router_trace->crc32c();
  return flags;
}

Status check_trace_fits(const RunFacts& facts, const ModelConfig& model) {
  if (!facts.router_trace) return {};
  const Status fits = facts.router_trace->check_fits(model);
  if (fits.ok()) return {};
  return make_error(fits.error().code, "--router-trace {}", fits.error().message);
}

Status check_same_trace(const RunSpec& spec, const RunFacts& facts, const ResolvedRun& run) {
  const SavedRun& commit = *facts.commit;
  const std::string& name = run.options.rank.run;
  const uint32_t then = commit.config.model.router_trace_crc32c;
  if (!commit.config.model.follows_trace()) {
    if (!facts.router_trace) return {};
    return make_error(ErrorCode::kInvalidArgument,
                      "--router-trace {}: run {} step {} was trained without a trace",
                      spec.router_trace, name, commit.step);
  }
  if (!facts.router_trace) {
    return make_error(ErrorCode::kInvalidArgument,
                      "run {} step {} was trained by a routing trace with CRC32C {:08x}: give the "
                      "same file by --router-trace FILE",
                      name, commit.step, then);
  }
  const uint32_t now = facts.router_trace->crc32c();
  if (now == then) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "--router-trace {}: has CRC32C {:08x}, run {} step {} was trained by another "
                    "trace, with {:08x}",
                    spec.router_trace, now, name, commit.step, then);
}

}  // namespace moetrain
