#include "client/ctl/block_names.h"

#include <fmt/format.h>

#include <charconv>

namespace ckptctl {
namespace {

constexpr std::string_view kWholeDimension = ":,";

// An index in decimal, without leading zeros.
std::optional<uint64_t> block_index(std::string_view digits) {
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || value > INT64_MAX) return std::nullopt;
  if (stop != digits.data() + digits.size()) return std::nullopt;
  if (digits.size() > 1 && digits.front() == '0') return std::nullopt;
  return value;
}

}  // namespace

std::string block_name(std::string_view base, size_t dim, uint64_t start, uint64_t stop) {
  std::string name = fmt::format("{}[", base);
  for (size_t i = 0; i < dim; ++i) name += kWholeDimension;
  return name + fmt::format("{}:{}]", start, stop);
}

std::optional<BlockName> parse_block_name(std::string_view name) {
  const size_t open = name.rfind('[');
  if (open == std::string_view::npos || !name.ends_with(']')) return std::nullopt;
  std::string_view indexes = name.substr(open + 1, name.size() - open - 2);
  BlockName block{.base = name.substr(0, open)};
  for (; indexes.starts_with(kWholeDimension); ++block.dim) {
    indexes.remove_prefix(kWholeDimension.size());
  }
  const size_t colon = indexes.find(':');
  if (block.dim == 0 || colon == std::string_view::npos) return std::nullopt;
  const auto start = block_index(indexes.substr(0, colon));
  const auto stop = block_index(indexes.substr(colon + 1));
  if (!start || !stop || *start >= *stop) return std::nullopt;
  block.start = *start;
  block.stop = *stop;
  return block;
}

}  // namespace ckptctl
