// Checks of kernels without a test framework: each check collects findings, sentences about what is
// wrong. GoogleTest (checks_test.cc) and a program without it (gpu_check.cc) run the same checks.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/array.h"
#include "kernels/cuda/queue.h"

namespace ckpt::kernels {

// Implementation of a kernel: for the CPU, or for CUDA on a device or on the emulated one.
enum class Backend { kCpu, kCuda };

// Environment of a check: a backend, random numbers, and the findings.
class Checker {
 public:
  // Null queue: runs on the CPU.
  Checker(CudaQueue* queue, uint64_t seed) : random(seed), queue_(queue) {}

  bool on_gpu() const { return queue_ != nullptr; }
  CudaQueue& queue() const {
    CKPT_ASSERT(queue_ != nullptr);
    return *queue_;
  }
  // Calls `call` with the queue, or without an argument on the CPU.
  template <typename Call>
  void run(const Call& call) {
    if (queue_ == nullptr) return call();
    call(*queue_);
  }

  void expect(bool holds, std::string_view what);
  // |value - expected| <= tolerance; a NaN is never near.
  void expect_near(double value, double expected, double tolerance, std::string_view what);
  // Reports the first difference. Not for NaNs.
  template <typename Values>
  void expect_equal(const Values& values, const Values& expected, std::string_view what) {
    if (values.size() != expected.size()) {
      return expect(false, std::string(what) + ": " + std::to_string(values.size()) +
                               " values, not " + std::to_string(expected.size()));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == expected[i]) continue;
      return expect(false, std::string(what) + ": differs at " + std::to_string(i));
    }
  }
  // Adds a figure to the output of the check; it is no finding.
  void note(std::string what) { notes_.push_back(std::move(what)); }
  // Waits for the device; adds a finding if a queued call has failed.
  void expect_done();
  template <typename T>
  std::vector<T> read(const DeviceArray<T>& array) {
    std::vector<T> content(array.size());
    const Status got = download(queue(), content.data(), array.data(), array.size() * sizeof(T));
    expect(got.ok(), got.ok() ? "" : got.error().message);
    return content;
  }

  // Sets the prefix of all later findings.
  void now(std::string context) { context_ = std::move(context); }
  const std::vector<std::string>& findings() const { return findings_; }
  const std::vector<std::string>& notes() const { return notes_; }

  std::mt19937_64 random;

 private:
  CudaQueue* queue_;
  std::string context_;
  std::vector<std::string> findings_;
  std::vector<std::string> notes_;
};

struct Check {
  std::string name;  // letters, digits and underscores
  Backend backend = Backend::kCuda;
  std::function<void(Checker&)> run;
  // `./dev gpu` runs each group in its own process. Letters, digits and underscores; empty: the
  // check's name.
  std::string group = {};
};
inline const std::string& group_of(const Check& check) {
  return check.group.empty() ? check.name : check.group;
}

std::vector<Check> kernel_checks(bool tiny);  // every KernelCase, every variant: kernel_checks.cc
std::vector<Check> dense_checks();            // AdamW, casts, ...: dense_checks.cc
std::vector<Check> moe_checks();              // moe_checks.cc
std::vector<Check> edge_checks();             // long lists, wide rows, ...: edge_checks.cc
std::vector<Check> pack_checks();             // pack_checks.cc
std::vector<Check> pack_planned_checks();     // pack_planned_checks.cc
std::vector<Check> byte_checks();             // byte planes and deltas: byte_checks.cc
std::vector<Check> sums_checks();             // sums_checks.cc
// All checks. `tiny`: sizes that an emulated device can finish.
std::vector<Check> all_checks(bool tiny);
// Runs one check and returns its findings. `queue` is for Backend::kCuda only. A lost device is a
// finding. The check's notes go into `notes` unless that is null.
std::vector<std::string> findings_of(const Check& check, CudaQueue* queue, uint64_t seed,
                                     std::vector<std::string>* notes = nullptr);

}  // namespace ckpt::kernels
