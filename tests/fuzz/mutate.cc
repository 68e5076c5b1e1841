#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <limits>
#include <random>

namespace ckpt::fuzz {
namespace {

using Random = std::mt19937_64;

// Numbers at which sizes and counts go wrong.
constexpr std::array<uint64_t, 14> kInteresting = {0,
                                                   1,
                                                   7,
                                                   8,
                                                   0x7f,
                                                   0x80,
                                                   0xff,
                                                   4095,
                                                   4096,
                                                   0x7fffffff,
                                                   0x80000000,
                                                   0xffffffff,
                                                   std::numeric_limits<uint64_t>::max() >> 1,
                                                   std::numeric_limits<uint64_t>::max()};

size_t below(Random& random, size_t bound) { return bound == 0 ? 0 : random() % bound; }

void overwrite_number(Bytes& bytes, Random& random) {
  const size_t width = size_t{1} << below(random, 4);
  if (bytes.size() < width) return;
  uint64_t number = kInteresting[below(random, kInteresting.size())];
  const size_t at = below(random, bytes.size() - width + 1);
  if (random() % 3 == 0) {  // a number slightly above or below the one that is there
    number = 0;
    std::memcpy(&number, bytes.data() + at, width);
    number += random() % 17 - 8;
  }
  std::memcpy(bytes.data() + at, &number, width);
}

void erase_range(Bytes& bytes, Random& random) {
  const size_t at = below(random, bytes.size());
  const size_t count = std::min(bytes.size() - at, 1 + below(random, 64));
  const auto first = bytes.begin() + static_cast<ptrdiff_t>(at);
  bytes.erase(first, first + static_cast<ptrdiff_t>(count));
}

void copy_range(Bytes& bytes, Random& random) {
  const size_t from = below(random, bytes.size());
  const size_t count = std::min(bytes.size() - from, 1 + below(random, 256));
  const Bytes piece(bytes.begin() + static_cast<ptrdiff_t>(from),
                    bytes.begin() + static_cast<ptrdiff_t>(from + count));
  const size_t to = below(random, bytes.size());
  if (random() % 2 == 0) {
    bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(to), piece.begin(), piece.end());
  } else {
    const size_t fits = std::min(count, bytes.size() - to);
    std::copy_n(piece.begin(), fits, bytes.begin() + static_cast<ptrdiff_t>(to));
  }
}

void change_once(Bytes& bytes, Random& random) {
  if (bytes.empty()) {
    bytes.push_back(static_cast<std::byte>(random()));
    return;
  }
  switch (random() % 7) {
    case 0:
      bytes[below(random, bytes.size())] ^= static_cast<std::byte>(1u << (random() % 8));
      break;
    case 1:
      bytes[below(random, bytes.size())] = static_cast<std::byte>(random());
      break;
    case 2:
    case 3:
      overwrite_number(bytes, random);
      break;
    case 4:
      copy_range(bytes, random);
      break;
    case 5:
      erase_range(bytes, random);
      break;
    default:
      if (random() % 2 == 0) {
        bytes.resize(below(random, bytes.size() + 1));
      } else {
        bytes.resize(bytes.size() + below(random, 5000), static_cast<std::byte>(random() % 2));
      }
  }
}

}  // namespace

Bytes Mutator::input(uint64_t iteration) const {
  std::seed_seq sequence{seed_, seed_ >> 32, iteration, iteration >> 32};
  Random random(sequence);
  if (random() % 16 == 0) {
    Bytes bytes(below(random, 9000));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    if (random() % 2 == 0) target_.repair(bytes);
    return bytes;
  }
  Bytes bytes = seeds_[below(random, seeds_.size())];
  const size_t changes = 1 + below(random, 8);
  for (size_t i = 0; i < changes; ++i) change_once(bytes, random);
  if (random() % 2 == 0) target_.repair(bytes);
  return bytes;
}

}  // namespace ckpt::fuzz
