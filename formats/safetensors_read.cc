#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "formats/base/printable.h"
#include "formats/safetensors.h"

namespace ckpt::safetensors {
namespace {

using nlohmann::json;

Error corrupt(std::string_view how) {
  return make_error(ErrorCode::kCorrupt, "safetensors: {}", how);
}
Error corrupt(const std::string& tensor, std::string_view how) {
  return make_error(ErrorCode::kCorrupt, "safetensors: tensor {}: {}", base::printable(tensor),
                    how);
}

// Receives the JSON of the header piece by piece and accepts only the one shape it may have. A tree
// of it is never built: a tree forgets duplicate keys, and a hostile one would be deep.
class HeaderHandler final : public nlohmann::json_sax<json> {
 public:
  Result<Header> take() && {
    if (error_) return std::move(*error_);
    return std::move(header_);
  }

  bool start_object(size_t) override {
    if (place_ == Place::kOutside) return enter(Place::kRoot);
    if (place_ != Place::kRoot) return fail("an object where none may be");
    keys_.clear();
    if (name_ == kMetadataKey) return enter(Place::kMetadata);
    tensor_ = Tensor{.name = name_};
    return enter(Place::kTensor);
  }

  bool key(string_t& key) override {
    std::set<std::string>& seen = place_ == Place::kRoot ? names_ : keys_;
    if (!seen.insert(key).second)
      return fail(fmt::format("key {} appears twice", base::printable(key)));
    if (place_ == Place::kRoot) {
      name_ = key;
      return true;
    }
    if (place_ == Place::kTensor && key != "dtype" && key != "shape" && key != "data_offsets") {
      return fail(fmt::format("unknown key {}", base::printable(key)));
    }
    key_ = key;
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata.emplace(key_, value);
      return true;
    }
    if (place_ != Place::kTensor || key_ != "dtype") return fail("a string where none may be");
    const std::optional<DType> dtype = dtype_from_name(value);
    if (!dtype) return fail(fmt::format("unknown dtype {}", base::printable(value)));
    tensor_.dtype = *dtype;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::kTensor && key_ == "shape") return enter(Place::kShape);
    if (place_ == Place::kTensor && key_ == "data_offsets") return enter(Place::kOffsets);
    return fail("an array where none may be");
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      if (tensor_.shape.size() == kTensorRankMax) return fail("too many dimensions");
      tensor_.shape.push_back(value);
      return true;
    }
    if (place_ == Place::kOffsets) {
      if (offsets_.size() == 2) return fail("data_offsets has more than two numbers");
      offsets_.push_back(value);
      return true;
    }
    return fail("a number where none may be");
  }

  bool end_array() override {
    if (place_ == Place::kOffsets) {
      if (offsets_.size() != 2) return fail("data_offsets has less than two numbers");
      tensor_.begin = offsets_[0];
      tensor_.end = offsets_[1];
      offsets_.clear();
    }
    return enter(Place::kTensor);
  }

  bool end_object() override {
    if (place_ == Place::kRoot) return enter(Place::kOutside);
    if (place_ == Place::kTensor) {
      if (keys_.size() != 3) return fail("dtype, shape or data_offsets is missing");
      header_.tensors.push_back(std::move(tensor_));
    }
    return enter(Place::kRoot);
  }

  // The format's own library takes `"__metadata__": null` for no metadata.
  bool null() override {
    if (place_ == Place::kRoot && name_ == kMetadataKey) return true;
    return fail("a null where none may be");
  }
  bool boolean(bool) override { return fail("a boolean where none may be"); }
  bool number_integer(number_integer_t) override { return fail("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return fail("a fraction, or a number above 64 bits");
  }
  bool binary(binary_t&) override { return fail("binary data"); }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    return fail(fmt::format("no JSON at byte {} of the header", position));
  }

 private:
  static constexpr std::string_view kMetadataKey = "__metadata__";
  enum class Place { kOutside, kRoot, kTensor, kShape, kOffsets, kMetadata };

  bool enter(Place place) {
    place_ = place;
    return true;
  }
  bool fail(std::string_view how) {
    const bool outside = place_ == Place::kOutside || names_.empty();
    error_ = outside ? corrupt(how) : corrupt(name_, how);
    return false;
  }

  Header header_;
  std::optional<Error> error_;
  Place place_ = Place::kOutside;
  std::string name_;             // the key of the root that is being read
  std::string key_;              // the key inside it
  std::set<std::string> names_;  // keys of the root so far
  std::set<std::string> keys_;   // keys of the object inside it so far
  Tensor tensor_;
  std::vector<uint64_t> offsets_;
};

// The tensors must tile the data section: no hole, no overlap, nothing left over.
Status check_ranges(const Header& header) {
  uint64_t taken_to = 0;
  for (const Tensor& tensor : header.tensors) {
    if (tensor.begin != taken_to || tensor.end < tensor.begin) {
      return corrupt(tensor.name, fmt::format("bytes [{}, {}) do not follow the tensor before it, "
                                              "which ends at {}",
                                              tensor.begin, tensor.end, taken_to));
    }
    const Result<uint64_t> bytes =
        tensor_bytes({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
    if (!bytes.ok()) {
      return make_error(ErrorCode::kCorrupt, "safetensors: {}", bytes.error().message);
    }
    if (*bytes != tensor.end - tensor.begin) {
      return corrupt(tensor.name, fmt::format("its shape takes {} bytes, its range has {}", *bytes,
                                              tensor.end - tensor.begin));
    }
    taken_to = tensor.end;
  }
  if (taken_to == header.data_bytes) return ok_status();
  const std::string how = fmt::format("the tensors take {} bytes, the file has {} after its header",
                                      taken_to, header.data_bytes);
  // A file that was cut: the first tensor that is not all there.
  for (const Tensor& tensor : header.tensors) {
    if (tensor.end > header.data_bytes) return corrupt(tensor.name, how);
  }
  return corrupt(how);
}

}  // namespace

Result<uint64_t> header_bytes(ByteView first_bytes, uint64_t file_bytes) {
  if (file_bytes < kLengthBytes) {
    return corrupt(fmt::format("the file has {} bytes, not even a header length", file_bytes));
  }
  if (first_bytes.size() < kLengthBytes) {
    return make_error(ErrorCode::kInvalidArgument, "safetensors: {} bytes given, {} wanted",
                      first_bytes.size(), kLengthBytes);
  }
  const auto json_bytes = base::load<uint64_t>(first_bytes.data());
  if (json_bytes > kHeaderBytesMax) {
    return corrupt(
        fmt::format("a header of {} bytes, allowed are {}", json_bytes, kHeaderBytesMax));
  }
  if (json_bytes > file_bytes - kLengthBytes) {
    return corrupt(fmt::format("a header of {} bytes in a file of {}", json_bytes, file_bytes));
  }
  return kLengthBytes + json_bytes;
}

namespace {

// The tensors as the JSON lists them, ascending by begin; their ranges are not checked.
Result<Header> read_tensors(ByteView prefix, uint64_t data_offset) {
  if (prefix.size() < data_offset) {
    return make_error(ErrorCode::kInvalidArgument, "safetensors: {} bytes given, {} wanted",
                      prefix.size(), data_offset);
  }
  const std::string_view text = as_text(prefix.subspan(kLengthBytes, data_offset - kLengthBytes));
  if (text.empty() || text.front() != '{') return corrupt("the header does not start with '{'");
  // The JSON parser takes a zero byte for the end of its input and would not read on.
  if (text.find('\0') != std::string_view::npos) return corrupt("the header has a zero byte");

  HeaderHandler handler;
  json::sax_parse(text.begin(), text.end(), &handler);
  CKPT_ASSIGN(Header header, std::move(handler).take());
  header.data_offset = data_offset;
  std::sort(header.tensors.begin(), header.tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  return header;
}

}  // namespace

Result<Header> parse_header(ByteView prefix, uint64_t file_bytes) {
  CKPT_ASSIGN(const uint64_t data_offset, header_bytes(prefix, file_bytes));
  CKPT_ASSIGN(Header header, read_tensors(prefix, data_offset));
  header.data_bytes = file_bytes - data_offset;
  CKPT_TRY(check_ranges(header));
  return header;
}

Result<Header> parse_lone_header(ByteView bytes) {
  CKPT_ASSIGN(const uint64_t data_offset, header_bytes(bytes, bytes.size()));
  if (data_offset != bytes.size()) {
    return corrupt(fmt::format("a header of {} bytes, {} given", data_offset, bytes.size()));
  }
  CKPT_ASSIGN(Header header, read_tensors(bytes, data_offset));
  if (!header.tensors.empty()) header.data_bytes = header.tensors.back().end;
  CKPT_TRY(check_ranges(header));
  return header;
}

}  // namespace ckpt::safetensors
