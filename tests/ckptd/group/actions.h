// Functions that the tests of Groups share.
#pragma once

#include <variant>
#include <vector>

#include "ckptd/group/group.h"

namespace ckptd {

inline constexpr ckpt::RunId kRun = 1;

// All actions of type T, in order.
template <typename T>
std::vector<T> all(const Groups::Actions& actions) {
  std::vector<T> found;
  for (const Groups::Action& action : actions) {
    if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
  }
  return found;
}

}  // namespace ckptd
