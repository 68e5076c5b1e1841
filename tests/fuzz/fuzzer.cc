#include "tests/fuzz/fuzzer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "formats/base/assert.h"

namespace ckpt::fuzz {
namespace {

using Random = std::mt19937_64;

constexpr uint64_t kInputsInSuite = 4000;
constexpr uint64_t kSeedInSuite = 1;
constexpr size_t kInputBytesMax = 1u << 20;
constexpr int kMutationsMax = 6;

// What to print if a parser aborts. Written before each input, read by the signal handler.
std::array<char, 256> current_input;

extern "C" void print_current_input(int signal) {
  const ssize_t ignored = ::write(STDERR_FILENO, current_input.data(),
                                  ::strnlen(current_input.data(), current_input.size()));
  static_cast<void>(ignored);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Numbers at which parsers go wrong, in one to eight bytes.
void put_number(Bytes& bytes, size_t at, Random& random) {
  static constexpr std::array<uint64_t, 12> kNumbers = {0,
                                                        1,
                                                        2,
                                                        0x7f,
                                                        0x80,
                                                        0xff,
                                                        0x7fff'ffff,
                                                        0x8000'0000,
                                                        0xffff'ffff,
                                                        1ull << 40,
                                                        std::numeric_limits<int64_t>::max(),
                                                        std::numeric_limits<uint64_t>::max()};
  const uint64_t number = kNumbers[random() % kNumbers.size()];
  const size_t width = std::min<size_t>(size_t{1} << (random() % 4), bytes.size() - at);
  std::memcpy(bytes.data() + at, &number, width);
}

void copy_within(Bytes& bytes, size_t at, Random& random) {
  const size_t from = random() % bytes.size();
  const size_t longest = bytes.size() - std::max(at, from);
  std::memmove(bytes.data() + at, bytes.data() + from, std::min<size_t>(random() % 64, longest));
}

void mutate_once(Bytes& bytes, const Bytes& other, Random& random) {
  if (bytes.empty()) {
    bytes = other;
    return;
  }
  const size_t at = random() % bytes.size();
  switch (random() % 7) {
    case 0:
      bytes[at] ^= static_cast<std::byte>(1u << (random() % 8));
      break;
    case 1:
      bytes[at] = static_cast<std::byte>(random());
      break;
    case 2:
    case 3:
      put_number(bytes, at, random);
      break;
    case 4:
      bytes.resize(at);
      break;
    case 5:
      copy_within(bytes, at, random);
      break;
    default: {  // the tail of another valid input
      const size_t from = random() % other.size();
      bytes.resize(at);
      bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      bytes.resize(std::min(bytes.size(), kInputBytesMax));
    }
  }
}

// Input number `input` of a seed: depends on nothing else, so that one can be repeated alone.
Bytes make_input(const Target& target, uint64_t seed, uint64_t input) {
  Random random(seed * 0x9e37'79b9'7f4a'7c15ull + input);
  const auto& corpus = target.corpus;
  Bytes bytes = corpus[random() % corpus.size()];
  for (uint64_t left = random() % (kMutationsMax + 1); left > 0; --left) {
    mutate_once(bytes, corpus[random() % corpus.size()], random);
  }
  if (target.repair && random() % 2 == 0) target.repair(bytes);
  return bytes;
}

std::optional<Finding> feed_one(const Target& target, uint64_t seed, uint64_t input) {
  const auto end = fmt::format_to_n(current_input.data(), current_input.size() - 1,
                                    "fuzz target {} seed {} input {}\n", target.name, seed, input);
  *end.out = '\0';
  // An exact allocation: AddressSanitizer sees a read one byte beyond it.
  const Bytes bytes = make_input(target, seed, input);
  const std::vector<std::byte> exact(bytes.begin(), bytes.end());
  if (auto what = target.feed(exact)) return Finding{seed, input, *what};
  return std::nullopt;
}

uint64_t number_from(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

}  // namespace

std::optional<Finding> run(const Target& target, uint64_t seed, uint64_t inputs) {
  CKPT_ASSERT(!target.corpus.empty());
  std::signal(SIGABRT, print_current_input);
  for (uint64_t input = 0; input < inputs; ++input) {
    if (auto finding = feed_one(target, seed, input)) return finding;
  }
  return std::nullopt;
}

std::optional<Finding> run(const Target& target) {
  const uint64_t seed = number_from("CKPT_FUZZ_SEED", kSeedInSuite);
  const uint64_t seconds = number_from("CKPT_FUZZ_SECONDS", 0);
  if (seconds == 0) return run(target, seed, kInputsInSuite);
  CKPT_ASSERT(!target.corpus.empty());
  std::signal(SIGABRT, print_current_input);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  uint64_t input = 0;
  for (; std::chrono::steady_clock::now() < end; ++input) {
    if (auto finding = feed_one(target, seed, input)) return finding;
  }
  fmt::print("{}: {} inputs of seed {}\n", target.name, input, seed);
  return std::nullopt;
}

}  // namespace ckpt::fuzz
