// CKPT_ASSERT: checks an invariant, in every build type.
//
// An expected failure (bad input, a full disk, a dead peer) is a Result. A failed assert means that
// this program is wrong. The assert prints the expression and aborts, because continuing with
// broken bookkeeping would commit wrong bytes.
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

// Same, with a message that names the object (run, step, unit, slab ...).
#define CKPT_ASSERT_MSG(expression, message)                                   \
  do {                                                                         \
    if (!(expression)) [[unlikely]]                                            \
      ::ckpt::base::assert_failed(#expression, __FILE__, __LINE__, (message)); \
  } while (false)
