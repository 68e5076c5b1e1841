// Fixture of the tests of libckpt: a small run, and bytes to save.
#pragma once

#include <gtest/gtest.h>

#include <ckpt/client.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace ckpt::test {

inline client::UnitInfo flat_unit(const std::string& name, uint64_t bytes) {
  return {name, -1, -1, "", bytes, {{name + ".weight", "U8", {bytes}, 0}}};
}

inline std::vector<char> random_bytes(uint64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<char> bytes(count);
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// ASSERT_OK(session.poll(0)): a failure shows the message of the error.
#define ASSERT_OK(expression)                                                 \
  do {                                                                        \
    const auto& assert_ok_outcome = (expression);                             \
    ASSERT_TRUE(assert_ok_outcome.ok()) << assert_ok_outcome.error().message; \
  } while (false)

}  // namespace ckpt::test
