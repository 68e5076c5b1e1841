#include "tests/support/recorded_frames.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace ckpt::test {
namespace {

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t at = 0; at + 1 < hex.size(); at += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(hex.substr(at, 2), nullptr, 16)));
  }
  return bytes;
}

}  // namespace

std::vector<RecordedConnection> recorded_connections(const std::string& name) {
  std::ifstream file(std::string(RECORDED_FRAMES) + "/" + name + ".txt");
  std::vector<RecordedConnection> connections;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    if (line == "connect") {
      connections.emplace_back();
      continue;
    }
    std::istringstream words(line);
    std::string direction;
    std::string hex;
    words >> direction >> hex;
    RecordedFrame frame{.from_client = direction == ">", .with_fd = hex == "fd"};
    if (frame.with_fd) words >> hex;
    frame.bytes = from_hex(hex);
    frame.message = wire::decode(frame.bytes).value();
    connections.at(connections.size() - 1).push_back(std::move(frame));
  }
  if (connections.empty()) throw std::runtime_error("no recorded frames: " + name);
  return connections;
}

}  // namespace ckpt::test
