#include <nlohmann/json.hpp>
#include <set>

#include "formats/base/checked.h"
#include "formats/base/ids.h"
#include "formats/safetensors.h"

namespace ckpt::safetensors {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";

// `text` as a JSON string, or an error if it is not UTF-8.
Result<std::string> quoted(std::string_view what, const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    return make_error(ErrorCode::kInvalidArgument, "safetensors: {} is not UTF-8", what);
  }
}

Result<std::string> metadata_json(const std::map<std::string, std::string>& metadata) {
  std::string out;
  for (const auto& [key, value] : metadata) {
    CKPT_ASSIGN(const std::string quoted_key, quoted("a metadata key", key));
    CKPT_ASSIGN(const std::string quoted_value, quoted("metadata " + key, value));
    out += fmt::format("{}{}:{}", out.empty() ? "" : ",", quoted_key, quoted_value);
  }
  return fmt::format("\"{}\":{{{}}}", kMetadataKey, out);
}

// The tensor's entry for a range that starts at `begin`, which is moved to its end.
Result<std::string> tensor_json(const Tensor& tensor, uint64_t& begin) {
  CKPT_ASSIGN(const std::string name, quoted("a tensor name", tensor.name));
  const TensorSpec spec{.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape};
  CKPT_ASSIGN(const uint64_t bytes, tensor_bytes(spec));
  const std::optional<uint64_t> end = base::checked_add(begin, bytes);
  if (!end) {
    return make_error(ErrorCode::kInvalidArgument,
                      "safetensors: tensor {}: the file would have more than 2^64 bytes",
                      tensor.name);
  }
  const std::string out =
      fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name,
                  dtype_name(tensor.dtype), fmt::join(tensor.shape, ","), begin, *end);
  begin = *end;
  return out;
}

}  // namespace

Result<std::vector<std::byte>> make_header(const std::vector<Tensor>& tensors,
                                           const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    CKPT_ASSIGN(const std::string entry, metadata_json(metadata));
    text += entry;
  }
  std::set<std::string_view> names;
  uint64_t begin = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.name == kMetadataKey || !names.insert(tensor.name).second) {
      return make_error(ErrorCode::kInvalidArgument,
                        "safetensors: tensor {}: the name is reserved or used twice", tensor.name);
    }
    CKPT_ASSIGN(const std::string entry, tensor_json(tensor, begin));
    if (text.size() > 1) text += ',';
    text += entry;
  }
  text += '}';

  const uint64_t total = base::align_up(kLengthBytes + text.size(), kBlockBytes);
  if (total - kLengthBytes > kHeaderBytesMax) {
    return make_error(ErrorCode::kResourceExhausted,
                      "safetensors: a header of {} bytes for {} tensors, allowed are {}",
                      total - kLengthBytes, tensors.size(), kHeaderBytesMax);
  }
  std::vector<std::byte> out(total, static_cast<std::byte>(' '));
  base::store(out.data(), uint64_t{total - kLengthBytes});
  std::memcpy(out.data() + kLengthBytes, text.data(), text.size());
  return out;
}

}  // namespace ckpt::safetensors
