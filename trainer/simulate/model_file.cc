#include "trainer/simulate/model_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "formats/base/printable.h"

namespace moetrain::simulate {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

const Parameter* find(std::string_view section, std::string_view key) {
  for (const Parameter& parameter : parameters()) {
    if (parameter.section == section && parameter.key == key) return &parameter;
  }
  return nullptr;
}

bool is_section(std::string_view name) {
  return std::ranges::any_of(parameters(),
                             [&](const Parameter& one) { return one.section == name; });
}

std::string known_keys(std::string_view section) {
  std::string keys;
  for (const Parameter& one : parameters()) {
    if (one.section == section) keys += fmt::format(" {}", one.key);
  }
  return keys;
}

Status set(const Parameter& parameter, const toml::node& node, CostModel& model) {
  std::optional<double> value = node.value_exact<double>();
  if (!value && node.is_integer()) value = static_cast<double>(*node.value_exact<int64_t>());
  if (!value || !std::isfinite(*value) || *value < parameter.low || *value > parameter.high ||
      (parameter.whole && *value != std::floor(*value))) {
    return make_error(ErrorCode::kInvalidArgument, "must be a {}number from {} to {}",
                      parameter.whole ? "whole " : "", parameter.low, parameter.high);
  }
  model.*parameter.field = *value;
  return {};
}

Status read_section(std::string_view name, const toml::table& section, const std::string& origin,
                    CostModel& model) {
  for (const auto& [key, node] : section) {
    const auto line = key.source().begin.line;
    const Parameter* parameter = find(name, key.str());
    if (parameter == nullptr) {
      return make_error(ErrorCode::kInvalidArgument, "{}:{}: {}.{}: unknown key; [{}] has:{}",
                        origin, line, name, ckpt::base::printable(key.str()), name,
                        known_keys(name));
    }
    const Status done = set(*parameter, node, model);
    if (!done.ok()) {
      return make_error(ErrorCode::kInvalidArgument, "{}:{}: {}.{}: {}", origin, line, name,
                        key.str(), done.error().message);
    }
  }
  return {};
}

Status check_complete(const toml::table& table, const std::string& origin) {
  for (const Parameter& parameter : parameters()) {
    const toml::table* section = table[parameter.section].as_table();
    if (section != nullptr && section->contains(parameter.key)) continue;
    const auto line = section == nullptr ? 1 : section->source().begin.line;
    return make_error(ErrorCode::kInvalidArgument, "{}:{}: {}.{} is missing", origin, line,
                      parameter.section, parameter.key);
  }
  return {};
}

}  // namespace

Result<CostModel> parse_model(std::string_view text, const std::string& origin) {
  if (text.size() > kModelFileMax) {
    return make_error(ErrorCode::kInvalidArgument, "{}: {} bytes, at most {}", origin, text.size(),
                      kModelFileMax);
  }
  toml::table table;
  try {
    table = toml::parse(text, origin);
  } catch (const toml::parse_error& error) {
    return make_error(ErrorCode::kInvalidArgument, "{}:{}: {}", origin, error.source().begin.line,
                      ckpt::base::printable(error.description(), 200));
  }
  CostModel model{};
  for (const auto& [name, node] : table) {
    const toml::table* section = node.as_table();
    if (section == nullptr || !is_section(name.str())) {
      return make_error(ErrorCode::kInvalidArgument, "{}:{}: {}: unknown section", origin,
                        name.source().begin.line, ckpt::base::printable(name.str()));
    }
    CKPT_TRY(read_section(name.str(), *section, origin, model));
  }
  CKPT_TRY(check_complete(table, origin));
  const Status valid = validate(model);
  if (valid.ok()) return model;
  return make_error(ErrorCode::kInvalidArgument, "{}: {}", origin, valid.error().message);
}

Result<std::string> read_text(const std::string& path, size_t bytes_max) {
  std::error_code failure;
  const auto type = std::filesystem::status(path, failure).type();
  if (type == std::filesystem::file_type::not_found) {
    return make_error(ErrorCode::kNotFound, "{}: no such file", path);
  }
  if (type == std::filesystem::file_type::directory) {
    return make_error(ErrorCode::kInvalidArgument, "{}: a directory", path);
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
