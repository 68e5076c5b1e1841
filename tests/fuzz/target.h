// A parser under attack: its seed inputs, the repair of its checksums after a mutation (otherwise
// the code behind them would never be reached), and the properties that hold for any bytes.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/bytes.h"

namespace ckpt::fuzz {

using Bytes = std::vector<std::byte>;

struct Target {
  std::string_view name;
  std::vector<Bytes> (*seeds)();
  // Parses, and asserts (CKPT_ASSERT) the properties of accepted input. True: accepted.
  bool (*parse)(ByteView bytes);
  // Makes lengths and checksums agree with the content, as far as possible.
  void (*repair)(Bytes& bytes) = [](Bytes&) {};
};

const std::vector<Target>& format_targets();      // formats on disk, in memory and on the wire
const std::vector<Target>& daemon_targets();      // input that only ckptd reads
const std::vector<Target>& text_targets();        // text that people and other programs write
const std::vector<Target>& model_file_targets();  // model files of other tools
const std::vector<Target>& trainer_targets();     // files that runs of the trainer leave

// Seeds that are texts.
std::vector<Bytes> texts(std::initializer_list<std::string_view> all);

// A parser of a two-line format with a planted bug. A fuzzer that misses the bug is broken.
const Target& canary();

// Finds one of these targets by its name; null if there is none.
const Target* find_target(std::string_view name);
std::vector<std::string> target_names();

}  // namespace ckpt::fuzz
