#include "tests/system/told_run.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace systemtest {

ToldRun::ToldRun(size_t layers, size_t experts)
    : layers_(layers), experts_(experts), held_(layers * experts) {}

void ToldRun::read(const nlohmann::json& line) {
  if (line.contains("snapshot")) {
    take(line.at("snapshot"), line.at("experts"));
    keep(line.at("snapshot"), line.value("memory_experts", std::vector<size_t>()));
    return;
  }
  if (line.contains("resumed_at")) {
    resume(line.at("resumed_at"), line.at("resumed_versions"));
  }
  if (line.contains("rolled_back")) roll_back(line.at("rolled_back"), line.at("versions"));
  const uint64_t step = line.at("step");
  routed_[step] = line.at("routed").get<std::vector<int64_t>>();
  if (!line.at("applied")) routed_[step].assign(layers_ * experts_, 0);
  for (auto& steps : held_) steps.insert(step);
}

double ToldRun::plt() const {
  double sum = 0;
  for (size_t layer = 0; layer < layers_; ++layer) {
    int64_t all = 0;
    int64_t lost = 0;
    for (size_t e = layer * experts_; e < (layer + 1) * experts_; ++e) {
      for (const auto& [step, tokens] : routed_) {
        all += tokens.at(e);
        lost += held_[e].contains(step) ? 0 : tokens.at(e);
      }
    }
    sum += static_cast<double>(lost) / static_cast<double>(all);
  }
  return sum / static_cast<double>(layers_);
}

std::vector<int64_t> ToldRun::lost() const {
  std::vector<int64_t> lost(held_.size());
  for (size_t e = 0; e < lost.size(); ++e) {
    for (const auto& [step, tokens] : routed_) {
      lost[e] += held_[e].contains(step) ? 0 : tokens.at(e);
    }
  }
  return lost;
}

void ToldRun::take(uint64_t step, const std::vector<size_t>& experts) {
  for (const size_t expert : experts) versions_[step][expert] = held_.at(expert);
  smallest_ = std::min(smallest_, experts.size());
}

// Versions in ckptd's memory, lost with ckptd or replaced: metrics tell which were restored.
void ToldRun::keep(uint64_t step, const std::vector<size_t>& experts) {
  for (const size_t expert : experts) versions_[step][expert] = held_.at(expert);
}

void ToldRun::resume(uint64_t step, const std::vector<uint64_t>& versions) {
  ++resumes_;
  routed_.erase(routed_.upper_bound(step), routed_.end());
  versions_.erase(versions_.upper_bound(step), versions_.end());
  ASSERT_TRUE(versions_.contains(step)) << "resumed at a step without a snapshot";
  ASSERT_EQ(versions.size(), held_.size());
  for (size_t expert = 0; expert < held_.size(); ++expert) {
    for (auto& [saved_at, saved] : versions_) {
      if (saved_at > versions[expert]) saved.erase(expert);
    }
    const auto from = versions_.find(versions[expert]);
    ASSERT_TRUE(from != versions_.end() && from->second.contains(expert))
        << "expert " << expert << " came back from step " << versions[expert];
    held_[expert] = from->second.at(expert);
  }
}

// Rolls these experts back; the others keep their state. -1: no version, initialised from the seed.
void ToldRun::roll_back(const std::vector<size_t>& experts, const std::vector<int64_t>& versions) {
  ASSERT_EQ(experts.size(), versions.size());
  for (size_t i = 0; i < experts.size(); ++i) {
    const size_t expert = experts[i];
    for (auto& [step, saved] : versions_) {
      if (static_cast<int64_t>(step) > versions[i]) saved.erase(expert);
    }
    ++rolled_back_;
    if (versions[i] < 0) {
      ++from_seed_;
      held_[expert].clear();
      continue;
    }
    const auto from = versions_.find(static_cast<uint64_t>(versions[i]));
    ASSERT_TRUE(from != versions_.end() && from->second.contains(expert))
        << "expert " << expert << " came back from step " << versions[i];
    held_[expert] = from->second.at(expert);
  }
}

}  // namespace systemtest
