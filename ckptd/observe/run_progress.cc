#include "ckptd/observe/run_progress.h"

#include <algorithm>
#include <iterator>

namespace ckptd {

namespace {

uint64_t changed_ns(const RunProgress::Run& run) {
  return std::max(run.durable ? run.durable->time_ns : 0, run.failing ? run.failing->since_ns : 0);
}

}  // namespace

bool RunProgress::Failing::of_full_disk() const { return kind == kKindDiskFull; }

std::optional<RunProgress::Failing> RunProgress::durable(const std::string& run,
                                                         const Durable& commit) {
  Run& state = runs_[run];
  state.durable = commit;
  return std::exchange(state.failing, std::nullopt);
}

bool RunProgress::failed(const std::string& run, const Failure& failure, uint64_t now_ns) {
  Run& state = runs_[run];
  const bool first = !state.failing;
  if (first) state.failing = Failing{.first_step = failure.step, .since_ns = now_ns};
  Failing& failing = *state.failing;
  ++failing.count;
  failing.last_step = failure.step;
  if (failing.in_store && !failure.in_store) return false;
  failing.in_store = failure.in_store;
  failing.cause_step = failure.step;
  failing.cause = failure.cause;
  return std::exchange(failing.kind, failure.kind) != failure.kind || first;
}

void RunProgress::update(const std::optional<std::set<std::string>>& trained,
                         const std::map<std::string, Waiting>& waiting) {
  if (trained) {
    for (const std::string& name : *trained) runs_.try_emplace(name);
  }
  for (auto entry = runs_.begin(); entry != runs_.end();) {
    auto& [name, run] = *entry;
    const auto waits = waiting.find(name);
    run.waiting = waits == waiting.end() ? std::nullopt : std::optional(waits->second);
    if (trained) run.trained = trained->contains(name);
    if (!run.trained && run.failing && !run.failing->in_store) run.failing.reset();
    const bool empty = !run.trained && !run.durable && !run.failing && !run.waiting;
    entry = empty ? runs_.erase(entry) : std::next(entry);
  }
}

void RunProgress::forget(const std::string& run) { runs_.erase(run); }

std::vector<std::pair<std::string, const RunProgress::Run*>> RunProgress::latest(
    size_t most) const {
  std::vector<std::pair<std::string, const Run*>> all;
  all.reserve(runs_.size());
  for (const auto& [name, run] : runs_) all.emplace_back(name, &run);
  const size_t count = std::min(most, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<ptrdiff_t>(count), all.end(),
                    [](const auto& a, const auto& b) {
                      if (a.second->trained != b.second->trained) return a.second->trained;
                      return changed_ns(*a.second) > changed_ns(*b.second);
                    });
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
