// One of our parsers under libFuzzer, which finds by coverage the inputs that reach new code.
//
//   CKPT_FUZZ_PARSER=NAME parsers_libfuzzer [FOLDER ...] [-max_total_time=N ...]
//   CKPT_FUZZ_PARSER=NAME parsers_libfuzzer FILE          repeats one input
//   CKPT_FUZZ_SEEDS=FOLDER                                first writes the samples there
//
// Without a name it lists the names. libfuzzer.py runs it (docs/internals/testing.md).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "formats/base/assert.h"
#include "tests/fuzz/target.h"

using ckpt::fuzz::Bytes;
using ckpt::fuzz::Target;

namespace {

const Target* chosen = nullptr;

void write_samples(const std::string& folder) {
  int number = 0;
  for (const Bytes& sample : chosen->seeds()) {
    std::ofstream file(folder + "/sample-" + std::to_string(number++), std::ios::binary);
    file.write(reinterpret_cast<const char*>(sample.data()),
               static_cast<std::streamsize>(sample.size()));
    CKPT_ASSERT_MSG(file.good(), "a sample could not be written");
  }
}

}  // namespace

// libFuzzer looks for these names; the whole project is compiled with hidden ones.
#define LIBFUZZER_CALLS extern "C" __attribute__((visibility("default")))

LIBFUZZER_CALLS size_t LLVMFuzzerMutate(uint8_t* data, size_t bytes, size_t bytes_max);

LIBFUZZER_CALLS int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const char* const name = std::getenv("CKPT_FUZZ_PARSER");
  if (name != nullptr) chosen = ckpt::fuzz::find_target(name);
  if (chosen == nullptr) {
    for (const std::string& known : ckpt::fuzz::target_names()) std::puts(known.c_str());
    std::exit(name == nullptr ? 0 : 2);
  }
  const char* const seeds = std::getenv("CKPT_FUZZ_SEEDS");
  if (seeds != nullptr) write_samples(seeds);
  return 0;
}

LIBFUZZER_CALLS int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const auto* const begin = reinterpret_cast<const std::byte*>(data);
  chosen->parse(ckpt::ByteView(begin, bytes));
  return 0;
}

// Repairs the checksums of half of the inputs. Otherwise the code behind them is never reached.
LIBFUZZER_CALLS size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t bytes, size_t bytes_max,
                                               unsigned seed) {
  const size_t mutated = LLVMFuzzerMutate(data, bytes, bytes_max);
  if (seed % 2 == 0) return mutated;
  const auto* const begin = reinterpret_cast<const std::byte*>(data);
  Bytes whole(begin, begin + mutated);
  chosen->repair(whole);
  if (whole.size() > bytes_max) return mutated;
  std::memcpy(data, whole.data(), whole.size());
  return whole.size();
}
