#include "trainer/parallel/gradient_sums.h"

#include <algorithm>

#include "formats/base/assert.h"

namespace moetrain {

void add_gradients(Tensor& to, uint64_t to_begin, const Tensor& from, uint64_t from_begin,
                   uint64_t count) {
  CKPT_ASSERT(to.type() == from.type());
  CKPT_ASSERT(to_begin + count <= to.size() && from_begin + count <= from.size());
  if (count == 0) return;
  if (to.type() == Type::kFloat) {
    to.device()->add(to.as<float>() + to_begin, from.as<float>() + from_begin, count);
    return;
  }
  const std::span<const double> terms = from.host<double>().subspan(from_begin, count);
  const std::span<double> sums = to.host<double>().subspan(to_begin, count);
  for (size_t i = 0; i < count; ++i) sums[i] += terms[i];
}

void round_sums(std::span<OwnedRange> owned) {
  for (OwnedRange& range : owned) {
    if (range.grad_sum.empty()) continue;
    std::ranges::transform(range.grad_sum.host<double>(), range.grad.host<float>().begin(),
                           [](double sum) { return static_cast<float>(sum); });
  }
}

}  // namespace moetrain
