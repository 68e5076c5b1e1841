// Experts as the kernels of a device take them.
#pragma once

#include <vector>

#include "trainer/device/device.h"

namespace moetrain {

// Group: kernels::ExpertGroup or kernels::CudaExpertGroup, with weights of type Weight and
// gradients of type Gradient. The matrices of an expert lie one after the other.
template <typename Group, typename Weight, typename Gradient>
std::vector<Group> expert_groups(const kernels::ExpertShape& shape,
                                 std::span<const ExpertRows> experts) {
  const int64_t matrix = shape.hidden * shape.intermediate;
  std::vector<Group> groups;
  groups.reserve(experts.size());
  for (const ExpertRows& work : experts) {
    const Weight* const w = work.expert.weights->as<Weight>();
    Group group{work.rows, w, w + matrix, w + 2 * matrix};
    if (work.expert.gradients != nullptr) {
      group.dw1 = work.expert.gradients->as<Gradient>();
      group.dw2 = group.dw1 + matrix;
      group.dw3 = group.dw2 + matrix;
    }
    groups.push_back(group);
  }
  return groups;
}

}  // namespace moetrain
