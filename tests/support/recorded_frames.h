// Frames recorded from an older version of the programs: golden bytes for tests of compatibility.
#pragma once

#include <string>
#include <vector>

#include "formats/wire/frame.h"

namespace ckpt::test {

struct RecordedFrame {
  bool from_client = false;
  bool with_fd = false;
  std::vector<std::byte> bytes;
  fb::MessageT message;
};
using RecordedConnection = std::vector<RecordedFrame>;

// Reads tests/support/recorded/NAME.txt, which explains its own form. Throws if it is not so.
std::vector<RecordedConnection> recorded_connections(const std::string& name);

}  // namespace ckpt::test
