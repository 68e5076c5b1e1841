#include "tests/golden/golden_file.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "formats/safetensors.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return make_error(ErrorCode::kNotFound, "{}: cannot be opened", path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

template <typename T>
std::vector<double> as_doubles(ckpt::ByteView bytes) {
  std::vector<double> values;
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    values.push_back(static_cast<double>(ckpt::base::load<T>(bytes.data() + i)));
  }
  return values;
}

Result<std::vector<double>> values_of(const ckpt::safetensors::Tensor& tensor,
                                      ckpt::ByteView bytes) {
  switch (tensor.dtype) {
    case ckpt::DType::kF32:
      return as_doubles<float>(bytes);
    case ckpt::DType::kF64:
      return as_doubles<double>(bytes);
    case ckpt::DType::kI32:
      return as_doubles<int32_t>(bytes);
    default:
      return make_error(ErrorCode::kInvalidArgument, "tensor {}: dtype {} is not used here",
                        tensor.name, ckpt::dtype_name(tensor.dtype));
  }
}

}  // namespace

const std::vector<double>& GoldenCase::at(const std::string& name) const {
  const auto found = tensors.find(name);
  CKPT_ASSERT_MSG(found != tensors.end(), name);
  return found->second.values;
}

Result<std::map<std::string, GoldenTensor>> read_tensors(
    const std::string& path, std::map<std::string, std::string>* metadata) {
  CKPT_ASSIGN(const std::string text, read_file(path));
  const ckpt::ByteView bytes = ckpt::as_bytes(text);
  CKPT_ASSIGN(const auto header, ckpt::safetensors::parse_header(bytes, bytes.size()));
  const ckpt::ByteView data = bytes.subspan(header.data_offset);
  std::map<std::string, GoldenTensor> tensors;
  for (const auto& tensor : header.tensors) {
    CKPT_ASSIGN(auto values,
                values_of(tensor, data.subspan(tensor.begin, tensor.end - tensor.begin)));
    tensors[tensor.name] = {tensor.shape, std::move(values)};
  }
  if (metadata != nullptr) *metadata = header.metadata;
  return tensors;
}

Result<GoldenCase> read_golden(const std::string& path) {
  std::map<std::string, std::string> metadata;
  GoldenCase golden;
  CKPT_ASSIGN(golden.tensors, read_tensors(path, &metadata));
  CKPT_ASSIGN(golden.config, from_hugging_face_json(metadata["config"]));
  const auto training = nlohmann::json::parse(metadata["training"], nullptr, false);
  if (!training.is_object()) {
    return make_error(ErrorCode::kInvalidArgument, "{}: no training settings", path);
  }
  golden.learning_rate = training.value("learning_rate", 0.0);
  golden.optimizer = {.beta1 = training.value("beta1", 0.0),
                      .beta2 = training.value("beta2", 0.0),
                      .eps = training.value("eps", 0.0),
                      .weight_decay = training.value("weight_decay", 0.0),
                      .clip_norm = training.value("clip_norm", 0.0)};
  const auto& shape = golden.tensors["tokens"].shape;
  if (shape.size() != 4 || shape[3] != golden.config.seq_len) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: tokens are not [steps, micro-batches, sequences, seq_len]", path);
  }
  golden.steps = static_cast<uint32_t>(shape[0]);
  golden.micro_batches = static_cast<uint32_t>(shape[1]);
  golden.sequences = static_cast<uint32_t>(shape[2]);
  return golden;
}

}  // namespace moetrain
