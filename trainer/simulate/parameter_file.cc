#include "trainer/simulate/parameter_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>

#include "formats/base/printable.h"

namespace moetrain::simulate {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

using Slots = std::span<const ParameterSlot>;

bool is_section(Slots slots, std::string_view name) {
  return std::ranges::any_of(slots, [&](const ParameterSlot& one) { return one.section == name; });
}

// "a" is the group of a section "a.b".
bool is_group(Slots slots, std::string_view name) {
  return std::ranges::any_of(slots, [&](const ParameterSlot& one) {
    return one.section.size() > name.size() && one.section.starts_with(name) &&
           one.section[name.size()] == '.';
  });
}

std::string known_keys(Slots slots, std::string_view section) {
  std::string keys;
  for (const ParameterSlot& one : slots) {
    if (one.section == section) keys += fmt::format(" {}", one.key);
  }
  return keys;
}

Status set(const ParameterSlot& slot, const toml::node& node) {
  std::optional<double> value = node.value_exact<double>();
  if (!value && node.is_integer()) value = static_cast<double>(*node.value_exact<int64_t>());
  CKPT_TRY(check_value(slot, value.value_or(std::nan(""))));
  *slot.value = *value;
  return {};
}

Status read_section(Slots slots, std::string_view name, const toml::table& section,
                    const std::string& origin) {
  for (const auto& [key, node] : section) {
    const auto line = key.source().begin.line;
    const auto slot = std::ranges::find_if(slots, [&](const ParameterSlot& one) {
      return one.section == name && one.key == key.str();
    });
    if (slot == slots.end()) {
      return make_error(ErrorCode::kInvalidArgument, "{}:{}: {}.{}: unknown key; [{}] has:{}",
                        origin, line, name, ckpt::base::printable(key.str()), name,
                        known_keys(slots, name));
    }
    const Status done = set(*slot, node);
    if (!done.ok()) {
      return make_error(ErrorCode::kInvalidArgument, "{}:{}: {}.{}: {}", origin, line, name,
                        key.str(), done.error().message);
    }
  }
  return {};
}

Status read_tables(Slots slots, const std::string& within, const toml::table& table,
                   const std::string& origin) {
  for (const auto& [key, node] : table) {
    const std::string name = within + std::string(key.str());
    const toml::table* section = node.as_table();
    if (section != nullptr && is_section(slots, name)) {
      CKPT_TRY(read_section(slots, name, *section, origin));
    } else if (section != nullptr && is_group(slots, name)) {
      CKPT_TRY(read_tables(slots, name + ".", *section, origin));
    } else {
      return make_error(ErrorCode::kInvalidArgument, "{}:{}: {}: unknown section", origin,
                        key.source().begin.line, ckpt::base::printable(name));
    }
  }
  return {};
}

const toml::table* find_section(const toml::table& table, std::string_view name) {
  const size_t dot = name.find('.');
  const toml::table* found = table[name.substr(0, dot)].as_table();
  if (dot == std::string_view::npos || found == nullptr) return found;
  return find_section(*found, name.substr(dot + 1));
}

Status check_complete(Slots slots, const toml::table& table, const std::string& origin) {
  for (const ParameterSlot& slot : slots) {
    const toml::table* section = find_section(table, slot.section);
    if (section != nullptr && section->contains(slot.key)) continue;
    const auto line = section == nullptr ? 1 : section->source().begin.line;
    return make_error(ErrorCode::kInvalidArgument, "{}:{}: {}.{} is missing", origin, line,
                      slot.section, slot.key);
  }
  return {};
}

}  // namespace

struct ParameterFile::Parsed {
  std::string origin;
  toml::table table;
};

ParameterFile::ParameterFile(std::unique_ptr<Parsed> parsed) : parsed_(std::move(parsed)) {}
ParameterFile::ParameterFile(ParameterFile&&) noexcept = default;
ParameterFile& ParameterFile::operator=(ParameterFile&&) noexcept = default;
ParameterFile::~ParameterFile() = default;

Result<ParameterFile> ParameterFile::parse(std::string_view text, const std::string& origin) {
  if (text.size() > kModelFileMax) {
    return make_error(ErrorCode::kInvalidArgument, "{}: {} bytes, at most {}", origin, text.size(),
                      kModelFileMax);
  }
  try {
    return ParameterFile(std::make_unique<Parsed>(origin, toml::parse(text, origin)));
  } catch (const toml::parse_error& error) {
    return make_error(ErrorCode::kInvalidArgument, "{}:{}: {}", origin, error.source().begin.line,
                      ckpt::base::printable(error.description(), 200));
  }
}

std::vector<std::string> ParameterFile::tables_in(std::string_view section) const {
  std::vector<std::pair<toml::source_index, std::string>> found;
  const toml::table* table = find_section(parsed_->table, section);
  if (table == nullptr) return {};
  for (const auto& [key, node] : *table) {
    if (node.is_table()) found.emplace_back(key.source().begin.line, key.str());
  }
  std::ranges::sort(found);
  std::vector<std::string> names;
  names.reserve(found.size());
  for (auto& [line, name] : found) names.push_back(std::move(name));
  return names;
}

Status ParameterFile::read(std::span<const ParameterSlot> slots) const {
  CKPT_TRY(read_tables(slots, "", parsed_->table, parsed_->origin));
  return check_complete(slots, parsed_->table, parsed_->origin);
}

Status check_value(const ParameterSlot& slot, double value) {
  if (std::isfinite(value) && value >= slot.low && value <= slot.high &&
      (!slot.whole || value == std::floor(value))) {
    return {};
  }
  return make_error(ErrorCode::kInvalidArgument, "must be a {}number from {} to {}",
                    slot.whole ? "whole " : "", slot.low, slot.high);
}

}  // namespace moetrain::simulate
