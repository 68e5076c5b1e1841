// A parser under attack: what it starts from, how its checksums are made right again after a
// mutation (else nothing behind them would ever be reached), and what must hold for any bytes.
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
  // Parses, and asserts (CKPT_ASSERT) what holds of everything that was accepted. True: accepted.
  bool (*parse)(ByteView bytes);
  // Makes lengths and checksums agree with the content, as far as the content lets it.
  void (*repair)(Bytes& bytes) = [](Bytes&) {};
};

const std::vector<Target>& format_targets();      // what lies on disks and in memory, and the wire
const std::vector<Target>& daemon_targets();      // what ckptd alone reads
const std::vector<Target>& text_targets();        // what people and other programs write
const std::vector<Target>& model_file_targets();  // model files as other tools leave them
const std::vector<Target>& trainer_targets();     // what runs of the trainer left

// Seeds that are texts.
std::vector<Bytes> texts(std::initializer_list<std::string_view> all);

// A parser of two lines of format with a bug planted in it. A fuzzer that does not find it is none.
const Target& canary();

// All of these, by name.
const Target* find_target(std::string_view name);
std::vector<std::string> target_names();

}  // namespace ckpt::fuzz
