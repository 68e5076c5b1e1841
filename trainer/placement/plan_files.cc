#include "trainer/placement/plan_files.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>

#include "formats/base/printable.h"
#include "trainer/placement/policy.h"

namespace moetrain {

using ckpt::Error;
using ckpt::ErrorCode;

namespace {

constexpr size_t kQuotedMax = 40;  // bytes of a field that a message repeats
constexpr size_t kLayersMax = 1u << 16;

std::string quoted(std::string_view text) {
  return "'" + ckpt::base::printable(text, kQuotedMax) + "'";
}

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Gives lines and their fields one by one; carriage returns before the end of a line are no part.
class Lines {
 public:
  Lines(std::string_view text, std::string_view origin) : text_(text), origin_(origin) {}

  bool next() {
    if (text_.empty()) return false;
    const size_t end = std::min(text_.find('\n'), text_.size());
    line_ = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    ++number_;
    ended_ = false;
    return true;
  }
  std::string_view line() const { return line_; }
  // The next field; nothing after the last one.
  std::optional<std::string_view> field() {
    if (ended_) return std::nullopt;
    const size_t end = line_.find(',');
    const std::string_view field = line_.substr(0, end);
    ended_ = end == std::string_view::npos;
    if (!ended_) line_.remove_prefix(end + 1);
    return field;
  }
  Error refuse(const std::string& why) const {
    return ckpt::make_error(ErrorCode::kInvalidArgument, "{} line {}: {}", origin_, number_, why);
  }

 private:
  std::string_view text_;
  const std::string_view origin_;
  std::string_view line_;
  uint64_t number_ = 0;
  bool ended_ = true;
};

Result<uint64_t> count_field(Lines& lines, const std::string& what) {
  const auto field = lines.field();
  if (!field) return lines.refuse(what + " is missing");
  const auto value = number(*field);
  if (value) return *value;
  return lines.refuse(fmt::format("{} is {}, which is no count", what, quoted(*field)));
}

Result<size_t> read_header(Lines& lines) {
  if (!lines.next()) return lines.refuse("is empty");
  if (lines.field() != "iteration" || lines.field() != "layer") {
    return lines.refuse("must begin with iteration,layer");
  }
  size_t experts = 0;
  while (const auto field = lines.field()) {
    if (*field != fmt::format("e{}", experts)) {
      return lines.refuse(fmt::format("column {} must be e{}", quoted(*field), experts));
    }
    if (++experts > kPlacementExpertsMax) return lines.refuse("too many experts");
  }
  if (experts == 0) return lines.refuse("has no experts");
  return experts;
}

}  // namespace

Result<std::vector<std::vector<uint64_t>>> parse_loads_csv(std::string_view csv,
                                                           std::string_view origin,
                                                           std::optional<uint64_t> iteration) {
  Lines lines(csv, origin);
  CKPT_ASSIGN(const size_t experts, read_header(lines));
  std::vector<std::vector<uint64_t>> wanted;
  std::optional<uint64_t> current;
  size_t layers = 0;  // of the current iteration
  while (lines.next()) {
    if (lines.line().empty()) continue;
    CKPT_ASSIGN(const uint64_t of, count_field(lines, "the iteration"));
    CKPT_ASSIGN(const uint64_t layer, count_field(lines, "the layer"));
    if (of != current) {
      layers = 0;
      if (!iteration || of == *iteration) wanted.clear();
    }
    current = of;
    if (layer != layers) {
      return lines.refuse(
          fmt::format("layer {} of iteration {} is not the next one, {}", layer, of, layers));
    }
    if (++layers > kLayersMax) return lines.refuse("too many layers");
    std::vector<uint64_t> loads;
    loads.reserve(experts);
    for (size_t expert = 0; expert < experts; ++expert) {
      CKPT_ASSIGN(const uint64_t load, count_field(lines, fmt::format("e{}", expert)));
      loads.push_back(load);
    }
    if (lines.field()) return lines.refuse(fmt::format("more than {} experts", experts));
    if (!iteration || of == *iteration) wanted.push_back(std::move(loads));
  }
  if (!wanted.empty()) return wanted;
  if (!iteration || !current) return lines.refuse("no loads follow");
  return ckpt::make_error(ErrorCode::kNotFound, "{}: there is no iteration {}", origin, *iteration);
}

Result<std::vector<uint64_t>> parse_loads(std::string_view text, std::string_view origin) {
  std::vector<uint64_t> loads;
  for (;;) {
    const size_t end = text.find(',');
    const auto load = number(text.substr(0, end));
    if (!load) {
      return ckpt::make_error(ErrorCode::kInvalidArgument,
                              "{}: the load of expert {} is {}, which is no count", origin,
                              loads.size(), quoted(text.substr(0, end)));
    }
    loads.push_back(*load);
    if (end == std::string_view::npos) return loads;
    text.remove_prefix(end + 1);
  }
}

Result<std::vector<uint32_t>> parse_domains(std::string_view csv, std::string_view origin,
                                            uint32_t ranks) {
  Lines lines(csv, origin);
  std::vector<std::optional<std::string_view>> node_of(ranks);
  for (bool first = true; lines.next(); first = false) {
    if (lines.line().empty() || (first && lines.line() == "rank,node")) continue;
    CKPT_ASSIGN(const uint64_t rank, count_field(lines, "the rank"));
    const auto node = lines.field();
    if (!node || node->empty()) return lines.refuse(fmt::format("rank {} has no node", rank));
    if (lines.field()) return lines.refuse("must be rank,node");
    if (rank >= ranks) {
      return lines.refuse(fmt::format("there is no rank {}, only 0 to {}", rank, ranks - 1));
    }
    if (node_of[rank]) return lines.refuse(fmt::format("rank {} has a line already", rank));
    node_of[rank] = *node;
  }
  std::map<std::string_view, uint32_t> domains;
  std::vector<uint32_t> domain_of_rank;
  domain_of_rank.reserve(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (!node_of[rank]) {
      return ckpt::make_error(ErrorCode::kInvalidArgument, "{}: rank {} of {} is missing", origin,
                              rank, ranks);
    }
    const auto next = static_cast<uint32_t>(domains.size());
    domain_of_rank.push_back(domains.try_emplace(*node_of[rank], next).first->second);
  }
  return domain_of_rank;
}

}  // namespace moetrain
