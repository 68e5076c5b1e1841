// A run recomputed from its --metrics with sets: the state of every expert is the set of steps
// whose updates it holds.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace systemtest {

class ToldRun {
 public:
  ToldRun(size_t layers, size_t experts);

  // The next line of the metrics.
  void read(const nlohmann::json& line);

  double plt() const;
  // Lost tokens per expert, like `lost_tokens` of a report.
  std::vector<int64_t> lost() const;
  size_t resumes() const { return resumes_; }
  size_t rolled_back() const { return rolled_back_; }
  size_t from_seed() const { return from_seed_; }
  size_t smallest_snapshot() const { return smallest_; }

 private:
  using Steps = std::set<uint64_t>;

  void take(uint64_t step, const std::vector<size_t>& experts);
  void keep(uint64_t step, const std::vector<size_t>& experts);
  void resume(uint64_t step, const std::vector<uint64_t>& versions);
  void roll_back(const std::vector<size_t>& experts, const std::vector<int64_t>& versions);

  const size_t layers_;
  const size_t experts_;
  std::map<uint64_t, std::vector<int64_t>> routed_;       // by step of the lineage
  std::map<uint64_t, std::map<size_t, Steps>> versions_;  // by step, by expert
  std::vector<Steps> held_;
  size_t resumes_ = 0;
  size_t rolled_back_ = 0;
  size_t from_seed_ = 0;
  size_t smallest_ = SIZE_MAX;
};

}  // namespace systemtest
