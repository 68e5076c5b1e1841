// CKPT_ASSERT: the check of an invariant that stays on in every build type.
//
// An expected failure (bad input, a full disk, a peer that died) is a Result. An assert is for what
// cannot happen unless this program is wrong; it prints the expression and aborts, because going on
// with broken bookkeeping is how wrong bytes get committed.
#pragma once

#include <string_view>

namespace ckpt::base {

[[noreturn]] void assert_failed(const char* expression, const char* file, int line,
                                std::string_view message);

}  // namespace ckpt::base

#define CKPT_ASSERT(expression)                                         \
  do {                                                                  \
    if (!(expression)) [[unlikely]]                                     \
      ::ckpt::base::assert_failed(#expression, __FILE__, __LINE__, {}); \
  } while (false)

// As CKPT_ASSERT, with a message that names the object (run, step, unit, slab ...).
#define CKPT_ASSERT_MSG(expression, message)                                   \
  do {                                                                         \
    if (!(expression)) [[unlikely]]                                            \
      ::ckpt::base::assert_failed(#expression, __FILE__, __LINE__, (message)); \
  } while (false)
