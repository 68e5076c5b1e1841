#include "trainer/simulate/model_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

namespace moetrain::simulate {

using ckpt::ErrorCode;
using ckpt::make_error;

Result<CostModel> parse_model(std::string_view text, const std::string& origin) {
  CKPT_ASSIGN(const ParameterFile file, ParameterFile::parse(text, origin));
  CostModel model{};
  std::vector<ParameterSlot> slots;
  slots.reserve(parameters().size());
  for (const Parameter& one : parameters()) {
    slots.push_back({one.section, one.key, one.low, one.high, one.whole, &(model.*one.field)});
  }
  CKPT_TRY(file.read(slots));
  const Status valid = validate(model);
  if (valid.ok()) return model;
  return make_error(ErrorCode::kInvalidArgument, "{}: {}", origin, valid.error().message);
}

Result<std::string> read_text(const std::string& path, size_t bytes_max) {
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  if (status.type() == std::filesystem::file_type::not_found) {
    return make_error(ErrorCode::kNotFound, "{}: no such file", path);
  }
  if (exists(status) && !is_regular_file(status)) {  // opening a pipe would wait for its writer
    return make_error(ErrorCode::kInvalidArgument, "{}: not a regular file", path);
  }
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::string block(64 << 10, '\0');
  while (file && text.size() <= bytes_max) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block, 0, static_cast<size_t>(file.gcount()));
  }
  if (text.size() > bytes_max) {
    return make_error(ErrorCode::kInvalidArgument, "{}: more than {} bytes", path, bytes_max);
  }
  if (!file.eof()) return make_error(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
  return text;
}

Result<CostModel> read_model(const std::string& path) {
  CKPT_ASSIGN(const std::string text, read_text(path, kModelFileMax));
  return parse_model(text, path);
}

std::string model_text(const CostModel& model, std::span<const std::string> comments) {
  std::string text;
  std::string_view section;
  size_t index = 0;
  for (const Parameter& parameter : parameters()) {
    if (parameter.section != section) {
      text += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", parameter.section);
      section = parameter.section;
    }
    const double value = model.*parameter.field;
    text += parameter.whole ? fmt::format("{} = {:.0f}", parameter.key, value)
                            : fmt::format("{} = {}", parameter.key, value);
    if (index < comments.size() && !comments[index].empty()) {
      text += fmt::format("  # {}", comments[index]);
    }
    text += "\n";
    ++index;
  }
  return text;
}

}  // namespace moetrain::simulate
