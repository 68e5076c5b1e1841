// safetensors, the Hugging Face tensor file: 8-byte little-endian header length, a JSON header,
// then the bytes of all tensors without holes.
// Format: https://github.com/huggingface/safetensors (README, "Format").
#pragma once

#include <map>
#include <string>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/result.h"
#include "formats/unit.h"

namespace ckpt::safetensors {

inline constexpr uint64_t kHeaderBytesMax = 100'000'000;

struct Tensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // in the data section
  uint64_t end = 0;
};

struct Header {
  std::vector<Tensor> tensors;  // ascending by begin
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;  // of the data section in the file
  uint64_t data_bytes = 0;
};

// Size of the header, length prefix included, from the first 8 bytes of the file: the bytes that
// `prefix` of parse_header must have.
inline constexpr uint64_t kLengthBytes = 8;
Result<uint64_t> header_bytes(ByteView first_bytes, uint64_t file_bytes);

// Reads and checks the header of a file of `file_bytes`, of which `prefix` is the start (at least
// the 8 length bytes and the JSON). Every limit of the format is enforced: length bound, first byte
// '{', no duplicate keys, known dtypes, shape x dtype equals the range, no hole, no overlap, data
// section fully covered, file exactly as long as announced. Stricter than the format: no keys but
// the three known ones, at most kTensorRankMax dimensions. Metadata that is null counts as none.
// Errors name the tensor.
Result<Header> parse_header(ByteView prefix, uint64_t file_bytes);

// The same for a header without its file: `bytes` is the length and the JSON and nothing else. The
// file is taken to end with its last tensor.
Result<Header> parse_lone_header(ByteView bytes);

// Header bytes (length prefix included) for tensors laid out one after another in the given order;
// begin and end of the arguments are ignored and recomputed. Padded with spaces so that the data
// section starts at a multiple of 4096. Refuses what parse_header would refuse.
Result<std::vector<std::byte>> make_header(const std::vector<Tensor>& tensors,
                                           const std::map<std::string, std::string>& metadata);

}  // namespace ckpt::safetensors
