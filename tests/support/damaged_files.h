// Damage on disk: one bit of given bytes, wherever in a folder they lie.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace ckpt::test {

// In every file directly in the folder, wherever the bytes occur. How often that was.
inline size_t flip_a_bit(const std::string& folder, std::span<const std::byte> bytes) {
  const auto* const begin = reinterpret_cast<const char*>(bytes.data());
  size_t flipped = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    std::vector<char> all(std::istreambuf_iterator<char>(file), {});
    auto found = all.begin();
    while ((found = std::search(found, all.end(), begin, begin + bytes.size())) != all.end()) {
      const char damaged = static_cast<char>(*found ^ 1);
      file.clear();
      file.seekp(found - all.begin());
      file.write(&damaged, 1);
      ++flipped;
      ++found;
    }
    EXPECT_TRUE(file.flush().good()) << entry.path();
  }
  return flipped;
}

}  // namespace ckpt::test
