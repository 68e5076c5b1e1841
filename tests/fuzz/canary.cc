#include "formats/base/assert.h"
#include "formats/base/checked.h"
#include "formats/base/crc32c.h"
#include "tests/fuzz/target.h"

namespace ckpt::fuzz {
namespace {

// canary := CRC32C of the rest (4) | count (1) | count x { length (1) | that many bytes }
constexpr size_t kHeaderBytes = 5;

std::vector<Bytes> seeds() {
  Bytes bytes(kHeaderBytes);
  bytes[4] = std::byte{3};
  for (const std::string_view word : {"red", "green", "blue"}) {
    bytes.push_back(static_cast<std::byte>(word.size()));
    const ByteView text = as_bytes(word);
    bytes.insert(bytes.end(), text.begin(), text.end());
  }
  return {bytes};
}

void repair(Bytes& bytes) {
  if (bytes.size() < kHeaderBytes) return;
  base::store(bytes.data(), base::crc32c(ByteView(bytes).subspan(4)));
}

bool parse(ByteView bytes) {
  if (bytes.size() < kHeaderBytes) return false;
  if (base::load<uint32_t>(bytes.data()) != base::crc32c(bytes.subspan(4))) return false;
  size_t at = kHeaderBytes;
  for (auto count = static_cast<uint8_t>(bytes[4]); count > 0; --count) {
    if (at >= bytes.size()) return false;
    const auto length = static_cast<uint8_t>(bytes[at++]);
    // The bug: where `length` ends is never compared with the size. A real parser would read beyond
    // its buffer here; this one says so instead, so that it is found without a sanitizer, too.
    CKPT_ASSERT_MSG(base::range_fits(at, length, bytes.size()), "the canary read out of bounds");
    at += length;
  }
  return at == bytes.size();
}

}  // namespace

const Target& canary() {
  static const Target target = {"canary", seeds, parse, repair};
  return target;
}

}  // namespace ckpt::fuzz
