// docs/reference shows each format with a worked example in hexadecimal. This test builds the
// examples and compares, so that the pages cannot rot.
#include <gtest/gtest.h>

#include <charconv>
#include <fstream>
#include <functional>
#include <sstream>

#include "formats/codec.h"
#include "formats/journal.h"
#include "formats/ledger.h"
#include "formats/safetensors.h"
#include "formats/segment.h"
#include "formats/wire/frame.h"

namespace ckpt {
namespace {

using Bytes = std::vector<std::byte>;

Bytes frame_example() {
  fb::DoneT done;
  done.request = 7;
  return wire::encode(std::move(done));
}

Bytes journal_example() {
  JournalEncoder::Position start;
  start.salt = 0x0123456789abcdef;
  fb::StoreClosedT closed;
  closed.time_ns = 1'700'000'000'000'000'000;
  std::vector<fb::RecordT> records(1);
  records[0].body.Set(std::move(closed));
  return JournalEncoder(start).encode(records).bytes;
}

constexpr base::Hash128 kStore{.low = 0x1111111111111111, .high = 0x2222222222222222};

Bytes segment_example() {
  Bytes block(kBlockBytes);
  encode_segment_header({.store = kStore, .segment = 3, .bytes = 1u << 30, .created_ns = 77},
                        block);
  return block;
}

Bytes extent_example() {
  ExtentHeader header{
      .store = kStore,
      .segment = 3,
      .offset = 4096,
      .snapshot = {.run = 1, .lineage = 2, .epoch = 4, .step = 1200, .attempt = 1},
      .rank = 6,
      .sequence = 9,
      .payload_bytes = 300,
      .payload_crc32c = 0,
      .fragments = {
          {.unit = 7, .offset = 0, .length = 100, .crc32c = 0xaabbccdd},
          {.unit = 8, .offset = 4096, .length = 172, .payload_offset = 128, .crc32c = 0x11223344}}};
  header.payload_crc32c = payload_crc32c(header.fragments, kBlockBytes);
  Bytes block(extent_header_bytes(header.fragments));
  encode_extent_header(header, block);
  return block;
}

// One fragment of each kind that an entry can describe: raw, encoded, delta.
Bytes encoded_extent_example() {
  ExtentHeader header{.store = kStore,
                      .segment = 3,
                      .offset = 12288,
                      .snapshot = {.run = 1, .lineage = 2, .epoch = 4, .step = 1210, .attempt = 1},
                      .rank = 6,
                      .sequence = 10,
                      .payload_bytes = 121,
                      .payload_crc32c = 0,
                      .fragments = {{.unit = 7, .length = 20, .crc32c = 0xaabbccdd},
                                    {.unit = 8,
                                     .codec = static_cast<uint32_t>(Codec::kZstdPlanes4),
                                     .length = 100,
                                     .payload_offset = 20,
                                     .crc32c = 0x11223344,
                                     .encoded_crc32c = 0x55667788,
                                     .encoded_bytes = 71},
                                    {.unit = 9,
                                     .codec = static_cast<uint32_t>(Codec::kDeltaZstdPlanes4),
                                     .length = 100,
                                     .payload_offset = 91,
                                     .crc32c = 0x99aabbcc,
                                     .encoded_crc32c = 0x12345678,
                                     .encoded_bytes = 30,
                                     .base_crc32c = 0x01020304}}};
  header.payload_crc32c = payload_crc32c(header.fragments, kBlockBytes);
  Bytes block(extent_header_bytes(header.fragments));
  encode_extent_header(header, block);
  return block;
}

Bytes ledger_example() {
  Bytes block(kBlockBytes);
  encode_ledger_header({.store = kStore,
                        .arena = 5,
                        .arena_inode = 1234,
                        .layout = {.slab_bytes = 65'536, .slab_count = 2},
                        .uid = 1000},
                       block);
  return block;
}

Bytes safetensors_example() {
  return safetensors::make_header({{.name = "w", .dtype = DType::kF32, .shape = {2, 3}}},
                                  {{"format", "pt"}})
      .value();
}

// Appends the bytes of a group of hexadecimal digits. False: the group is no whole bytes.
bool append_group(const std::string& digits, Bytes& bytes) {
  constexpr size_t kDigits = 2;  // per byte
  if (digits.size() % kDigits != 0) return false;
  for (size_t at = 0; at < digits.size(); at += kDigits) {
    const char* begin = digits.data() + at;
    unsigned value = 0;
    const auto [end, error] = std::from_chars(begin, begin + kDigits, value, 16);
    if (error != std::errc() || end != begin + kDigits) return false;
    bytes.push_back(static_cast<std::byte>(value));
  }
  return true;
}

// An example on a page: a block fenced as "```hex NAME". Each line is an offset and the bytes
// there, both in hexadecimal, in groups of any size, and a remark after '|'. Bytes without a line
// are zero; the last line is an offset alone, the size. Safetensors pads with spaces instead.
Bytes example_on_page(const std::string& page, const std::string& name, std::byte padding) {
  std::ifstream file(std::string(CKPT_REFERENCE) + "/" + page);
  Bytes bytes;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "```hex " + name) {
      inside = true;
      continue;
    }
    if (!inside) continue;
    if (line == "```") break;
    std::istringstream words(line.substr(0, line.find('|')));
    size_t at = 0;
    words >> std::hex >> at;
    if (at < bytes.size() || at > (1u << 20)) return {};  // lines go up, and examples are small
    bytes.resize(at, padding);
    for (std::string group; words >> group;) {
      if (!append_group(group, bytes)) return {};
    }
  }
  return bytes;
}

// Hex dump in the form of the page's blocks, ready to be pasted.
std::string dump(const Bytes& bytes, std::byte padding) {
  constexpr size_t kPerLine = 16;
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += kPerLine) {
    const Bytes line(bytes.begin() + static_cast<ptrdiff_t>(at),
                     bytes.begin() + static_cast<ptrdiff_t>(std::min(at + kPerLine, bytes.size())));
    if (line == Bytes(line.size(), padding)) continue;
    out += fmt::format("{:04x} ", at);
    for (const std::byte byte : line) out += fmt::format(" {:02x}", static_cast<int>(byte));
    out += '\n';
  }
  return out + fmt::format("{:04x}\n", bytes.size());
}

struct Example {
  std::string name;
  std::function<Bytes()> build;
  std::byte padding{0};
  std::string page = "formats.md";
};
class Reference : public testing::TestWithParam<Example> {};

TEST_P(Reference, ShowsTheBytesThatAreWritten) {
  const Bytes built = GetParam().build();
  const Bytes shown = example_on_page(GetParam().page, GetParam().name, GetParam().padding);
  EXPECT_TRUE(built == shown) << GetParam().page << " should show:\n```hex " << GetParam().name
                              << '\n'
                              << dump(built, GetParam().padding) << "```";
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Reference,
    testing::Values(Example{"frame", frame_example, std::byte{0}, "protocol.md"},
                    Example{"journal", journal_example}, Example{"segment", segment_example},
                    Example{"extent", extent_example},
                    Example{"encoded_extent", encoded_extent_example},
                    Example{"ledger", ledger_example},
                    Example{"safetensors", safetensors_example, std::byte{' '}}),
    [](const auto& example) { return example.param.name; });

}  // namespace
}  // namespace ckpt
