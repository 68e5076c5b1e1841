#include "ckptd/observe/health_text.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "formats/base/counted.h"
#include "formats/base/parse.h"

namespace ckptd {

using ckpt::base::counted;
using ckpt::base::format_age;

namespace {

std::string age_text(uint64_t since_ns, uint64_t now_ns) {
  return format_age(std::chrono::nanoseconds(now_ns > since_ns ? now_ns - since_ns : 0));
}

}  // namespace

uint64_t age_ns(const RunProgress::Durable& durable, uint64_t now_ns) {
  return now_ns > durable.time_ns ? now_ns - durable.time_ns : 0;
}

std::string health_lines(const Health& health, uint64_t now_ns) {
  std::string lines;
  for (size_t i = 0; i < kConditions; ++i) {
    const auto condition = static_cast<Condition>(i);
    const Health::Held* held = health.held(condition);
    if (held == nullptr) continue;
    lines += fmt::format("{} for {}: {}; {}\n", condition_name(condition),
                         age_text(held->since_ns, now_ns), held->fault.cause, held->fault.remedy);
  }
  return lines;
}

std::string progress_lines(const RunProgress& progress, uint64_t now_ns, size_t most) {
  std::string lines;
  for (const auto& [name, run] : progress.latest(most)) {
    lines += fmt::format("run {}: ", name);
    if (run->durable) {
      lines += fmt::format("step {} is durable, {} old", run->durable->step,
                           age_text(run->durable->time_ns, now_ns));
    } else {
      lines += "no step is durable yet";
    }
    if (run->trained) lines += ", trained";
    if (run->waiting) {
      lines += fmt::format("; {} for the disk, the oldest, of step {}, for {}",
                           counted(run->waiting->count, "snapshot waits", "snapshots wait"),
                           run->waiting->first_step,
                           format_age(std::chrono::nanoseconds(run->waiting->longest_ns)));
    }
    if (run->failing) {
      const RunProgress::Failing& of = *run->failing;
      lines += fmt::format("; {} failed since, {} of step {}: {}", counted(of.count, "snapshot"),
                           of.cause_step == of.last_step ? "the last" : "one", of.cause_step,
                           of.of_full_disk() ? kKindDiskFull : std::string_view(of.cause));
    }
    lines += "\n";
  }
  if (progress.runs().size() > most) {
    lines += fmt::format("and {}\n", counted(progress.runs().size() - most, "more run"));
  }
  return lines;
}

void add_health(MetricsText& text, const Health& health) {
  const char* help = "1 while the condition holds; /healthz tells its cause and remedy.";
  for (size_t i = 0; i < kConditions; ++i) {
    const auto condition = static_cast<Condition>(i);
    text.gauge("ckptd_condition", std::exchange(help, ""), health.held(condition) ? 1 : 0,
               {{"name", condition_name(condition)}});
  }
  help = "Times that the condition began.";
  for (size_t i = 0; i < kConditions; ++i) {
    const auto condition = static_cast<Condition>(i);
    text.counter("ckptd_condition_begun_total", std::exchange(help, ""),
                 health.times_begun(condition), {{"name", condition_name(condition)}});
  }
  text.gauge("ckptd_can_save", "0 while a condition holds that keeps snapshots from being saved.",
             health.can_save() ? 1 : 0);
}

void add_progress(MetricsText& text, const RunProgress& progress, uint64_t now_ns, size_t most) {
  const auto runs = progress.latest(most);
  const auto each = [&](const char* name, const char* help, const auto& value_of) {
    for (const auto& [run, state] : runs) {
      if (const std::optional<double> value = value_of(*state)) {
        text.gauge(name, help, *value, {{"run", run}});
      }
    }
  };
  using Run = RunProgress::Run;
  using Value = std::optional<double>;
  each("ckptd_run_step", "Step of the newest durable commit, by run.", [](const Run& run) {
    return run.durable ? Value(static_cast<double>(run.durable->step)) : Value();
  });
  each("ckptd_run_durable_age_seconds", "Age of the newest durable commit, by run.",
       [now_ns](const Run& run) {
         return run.durable ? Value(static_cast<double>(age_ns(*run.durable, now_ns)) / 1e9)
                            : Value();
       });
  each("ckptd_run_snapshots_failing", "Snapshots that have failed since the newest durable commit.",
       [](const Run& run) {
         return Value(run.failing ? static_cast<double>(run.failing->count) : 0.0);
       });
  each("ckptd_run_snapshots_waiting", "Snapshots sealed by all ranks and not settled.",
       [](const Run& run) {
         return Value(run.waiting ? static_cast<double>(run.waiting->count) : 0.0);
       });
  each("ckptd_run_trained", "1 while ranks train the run.",
       [](const Run& run) { return Value(run.trained ? 1.0 : 0.0); });
  each("ckptd_run_lost_tokens", "Tokens lost by recoveries, as of the newest durable commit.",
       [](const Run& run) {
         const bool known = run.durable && run.durable->lost_tokens;
         return known ? Value(static_cast<double>(*run.durable->lost_tokens)) : Value();
       });
  each("ckptd_run_plt", "Proportion of lost tokens (PLT), as the trainer reports it.",
       [](const Run& run) { return run.durable ? run.durable->plt : Value(); });
  text.gauge("ckptd_runs_not_shown",
             "Runs left out of the metrics per run: untrained runs that are unchanged longest.",
             static_cast<double>(progress.runs().size() - runs.size()));
}

}  // namespace ckptd
