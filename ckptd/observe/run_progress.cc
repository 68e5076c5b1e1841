#include "ckptd/observe/run_progress.h"

#include <algorithm>

namespace ckptd {

namespace {

uint64_t changed_ns(const RunProgress::Run& run) {
  return std::max(run.durable ? run.durable->time_ns : 0, run.failing ? run.failing->since_ns : 0);
}

}  // namespace

std::optional<RunProgress::Failing> RunProgress::durable(const std::string& run,
                                                         const Durable& commit) {
  Run& state = runs_[run];
  state.durable = commit;
  return std::exchange(state.failing, std::nullopt);
}

bool RunProgress::failed(const std::string& run, uint64_t step, std::string cause, std::string kind,
                         uint64_t now_ns) {
  Run& state = runs_[run];
  const bool other = !state.failing || state.failing->kind != kind;
  if (!state.failing) state.failing = Failing{.first_step = step, .since_ns = now_ns};
  Failing& failing = *state.failing;
  ++failing.count;
  failing.last_step = step;
  failing.cause = std::move(cause);
  failing.kind = std::move(kind);
  return other;
}

void RunProgress::ended(const std::string& run) {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  found->second.failing.reset();
  if (!found->second.durable) runs_.erase(found);
}

void RunProgress::forget(const std::string& run) { runs_.erase(run); }

std::vector<std::pair<std::string, const RunProgress::Run*>> RunProgress::latest(
    size_t most) const {
  std::vector<std::pair<std::string, const Run*>> all;
  all.reserve(runs_.size());
  for (const auto& [name, run] : runs_) all.emplace_back(name, &run);
  const size_t count = std::min(most, all.size());
  std::partial_sort(
      all.begin(), all.begin() + static_cast<ptrdiff_t>(count), all.end(),
      [](const auto& a, const auto& b) { return changed_ns(*a.second) > changed_ns(*b.second); });
  all.resize(count);
  return all;
}

std::string kind_of_cause(const std::string& cause) {
  std::string kind;
  bool in_number = false;
  for (const char c : cause) {
    const bool digit = c >= '0' && c <= '9';
    if (digit && !in_number) kind += '#';
    in_number = digit || (in_number && c == '.');
    if (!in_number) kind += c;
  }
  return kind;
}

}  // namespace ckptd
