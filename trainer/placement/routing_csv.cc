#include "trainer/placement/routing_csv.h"

#include <utility>

#include "trainer/placement/policy.h"

namespace moetrain {

using ckpt::Result;
using ckpt::Status;

namespace {

constexpr size_t kLayersMax = 1u << 16;

}  // namespace

Status RoutingCsv::read_header() {
  if (!lines_.next()) return lines_.refuse("is empty");
  if (lines_.field() != "iteration" || lines_.field() != "layer") {
    return lines_.refuse("must begin with iteration,layer");
  }
  while (const auto field = lines_.field()) {
    const std::string& column = columns_.emplace_back(fmt::format("e{}", columns_.size()));
    if (*field != column) {
      return lines_.refuse(fmt::format("column {} must be {}", quoted(*field), column));
    }
    if (columns_.size() > kPlacementExpertsMax) return lines_.refuse("too many experts");
  }
  if (columns_.empty()) return lines_.refuse("has no experts");
  return {};
}

Result<std::optional<RoutingCsv::Row>> RoutingCsv::read_row() {
  if (!lines_.next()) return std::optional<Row>();
  Row row;
  CKPT_ASSIGN(row.iteration, lines_.count("the iteration"));
  CKPT_ASSIGN(row.layer, lines_.count("the layer"));
  row.tokens.reserve(columns_.size());
  for (const std::string& column : columns_) {
    CKPT_ASSIGN(const uint64_t tokens, lines_.count(column, kPlacementTokensMax));
    row.tokens.push_back(tokens);
  }
  if (lines_.field()) return lines_.refuse(fmt::format("more than {} experts", columns_.size()));
  return std::optional(std::move(row));
}

Result<std::optional<RoutingSample>> RoutingCsv::next() {
  if (columns_.empty()) {
    CKPT_TRY(read_header());
    CKPT_ASSIGN(row_, read_row());
    if (!row_) return lines_.refuse("no samples follow");
  }
  if (!row_) return std::optional<RoutingSample>();
  if (iteration_ && row_->iteration < *iteration_) {
    return lines_.refuse(fmt::format("iteration {} after {}", row_->iteration, *iteration_));
  }
  RoutingSample sample{.iteration = row_->iteration};
  iteration_ = row_->iteration;
  while (row_ && row_->iteration == sample.iteration) {
    if (row_->layer != sample.layers.size()) {
      return lines_.refuse(fmt::format("layer {} of iteration {} is not the next one, {}",
                                       row_->layer, row_->iteration, sample.layers.size()));
    }
    if (sample.layers.size() == kLayersMax) return lines_.refuse("too many layers");
    sample.layers.push_back(std::move(row_->tokens));
    CKPT_ASSIGN(row_, read_row());
  }
  if (layers_ == 0) layers_ = sample.layers.size();
  if (sample.layers.size() == layers_) return std::optional(std::move(sample));
  return lines_.refuse(fmt::format("iteration {} has {} layers, the first one {}", sample.iteration,
                                   sample.layers.size(), layers_));
}

}  // namespace moetrain
