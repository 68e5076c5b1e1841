#include "tests/kernels/checker.h"

#include <cmath>

#include "kernels/blas.h"
#include "tests/kernels/test_device.h"

namespace ckpt::kernels {

void Checker::expect(bool holds, std::string_view what) {
  constexpr size_t kFindingsMax = 20;  // further findings say nothing new
  if (holds || findings_.size() >= kFindingsMax) return;
  findings_.push_back(context_.empty() ? std::string(what) : context_ + ": " + std::string(what));
}

void Checker::expect_near(double value, double expected, double tolerance, std::string_view what) {
  const bool near = std::abs(value - expected) <= tolerance;
  if (near || (value == expected && std::isinf(value))) return;
  expect(false, std::string(what) + ": " + std::to_string(value) + " is not within " +
                    std::to_string(tolerance) + " of " + std::to_string(expected));
}

void Checker::expect_done() {
  const Status done = synchronize(queue());
  expect(done.ok(), done.ok() ? "" : done.error().message);
}

std::vector<Check> all_checks(bool tiny) {
  std::vector<Check> all;
  const auto add = [&](std::vector<Check> list, const char* group) {
    for (Check& check : list) {
      if (check.group.empty()) check.group = group;
      all.push_back(std::move(check));
    }
  };
  add(pack_checks(), "pack");
  add(pack_planned_checks(), "pack");
  add(byte_checks(), "bytes");
  add(kernel_checks(tiny), "");  // a group for each kernel
  add(dense_checks(), "dense");
  add(moe_checks(), "moe");
  add(edge_checks(), "edges");
  add(sums_checks(), "sums");
  return all;
}

std::vector<std::string> findings_of(const Check& check, CudaQueue* queue, uint64_t seed,
                                     std::vector<std::string>* notes) {
  use_one_blas_thread();
  Checker checker(check.backend == Backend::kCuda ? queue : nullptr, seed);
  try {
    check.run(checker);
    if (checker.on_gpu()) checker.expect_done();
  } catch (const NoDeviceMemory& none) {
    checker.expect(false, none.what());
    // A queued call that failed earlier explains more.
    if (checker.on_gpu()) checker.expect_done();
  }
  if (notes != nullptr) *notes = checker.notes();
  return checker.findings();
}

}  // namespace ckpt::kernels
