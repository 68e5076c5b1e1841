#include "trainer/elastic/recut_plan.h"

#include <algorithm>

#include "formats/base/assert.h"

namespace moetrain {
namespace {

bool covers(std::span<const ElementRange> ranges, uint64_t elements) {
  std::vector<ElementRange> sorted(ranges.begin(), ranges.end());
  std::ranges::sort(sorted, {}, &ElementRange::begin);
  uint64_t covered = 0;
  for (const ElementRange& range : sorted) {
    if (range.begin > covered) return false;
    covered = std::max(covered, range.end);
  }
  return covered == elements;
}

bool contains(const ElementRange& range, const ElementRange& part) {
  return range.begin <= part.begin && part.end <= range.end;
}

// Pieces of [begin, end), none of them larger than this.
void cut_evenly(ElementRange range, uint64_t elements_max, uint32_t of,
                std::vector<RecutPiece>& pieces) {
  while (!range.empty()) {
    const uint64_t end = std::min(range.end, range.begin + elements_max);
    pieces.push_back({of, {range.begin, end}});
    range.begin = end;
  }
}

// The range, cut where any rank's held range begins or ends: each piece is held whole or not at
// all.
std::vector<ElementRange> cut_at_bounds(const ElementRange& range,
                                        std::span<const ElementRange> held) {
  std::vector<uint64_t> bounds = {range.begin, range.end};
  for (const ElementRange& one : held) {
    for (const uint64_t bound : {one.begin, one.end}) {
      if (bound > range.begin && bound < range.end) bounds.push_back(bound);
    }
  }
  std::ranges::sort(bounds);
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  std::vector<ElementRange> parts;
  for (size_t i = 1; i < bounds.size(); ++i) parts.push_back({bounds[i - 1], bounds[i]});
  return parts;
}

// Bytes of a piece in a buffer.
uint64_t piece_bytes(const RecutRequest& request, const RecutPiece& piece) {
  return piece.elements.size() * request.bytes_per_element + request.bytes_per_piece;
}

void add_experts(const RecutRequest& request, uint64_t piece_max, RecutPlan& plan,
                 std::vector<MovingItem>& items) {
  for (uint32_t to = 0; to < request.wanted.size(); ++to) {
    for (const ElementRange& part : cut_at_bounds(request.wanted[to], request.held)) {
      if (contains(request.held[to], part)) continue;
      MovingItem item{.wanted = {to}};
      for (uint32_t rank = 0; rank < request.held.size(); ++rank) {
        if (contains(request.held[rank], part)) item.holders.push_back(rank);
      }
      CKPT_ASSERT(!item.holders.empty());
      std::vector<RecutPiece> pieces;
      cut_evenly(part, piece_max, 0, pieces);
      for (const RecutPiece& piece : pieces) {
        item.bytes = piece_bytes(request, piece);
        items.insert(items.end(), request.experts, item);
        plan.expert_pieces.push_back(piece);
      }
    }
  }
}

void add_dense(const RecutRequest& request, uint64_t piece_max, RecutPlan& plan,
               std::vector<MovingItem>& items) {
  MovingItem item;
  for (uint32_t rank = 0; rank < request.dense_held.size(); ++rank) {
    (request.dense_held[rank] ? item.holders : item.wanted).push_back(rank);
  }
  if (item.wanted.empty()) return;
  CKPT_ASSERT(!item.holders.empty());
  for (uint32_t of = 0; of < request.dense.size(); ++of) {
    cut_evenly({0, request.dense[of]}, piece_max, of, plan.dense_pieces);
  }
  items.reserve(items.size() + plan.dense_pieces.size());
  for (const RecutPiece& piece : plan.dense_pieces) {
    item.bytes = piece_bytes(request, piece);
    items.push_back(item);
  }
}

}  // namespace

std::vector<int64_t> to_values(const CutStatus& status) {
  return {static_cast<int64_t>(status.held.begin), static_cast<int64_t>(status.held.end),
          status.filled ? 1 : 0, static_cast<int64_t>(status.next.begin),
          static_cast<int64_t>(status.next.end)};
}

CutStatus cut_status_from(std::span<const int64_t> values) {
  const auto range = [&values](size_t at) {
    return ElementRange{static_cast<uint64_t>(values[at]), static_cast<uint64_t>(values[at + 1])};
  };
  return {.held = range(0), .filled = values[2] != 0, .next = range(3)};
}

CutAgreement agree_on_cut(std::span<const CutStatus> statuses, uint64_t elements) {
  CutAgreement agreement;
  for (const bool adopts : {false, true}) {
    agreement.adopts = adopts;
    agreement.held.clear();
    agreement.held.reserve(statuses.size());
    for (const CutStatus& status : statuses) {
      agreement.held.push_back(adopts && status.filled ? status.next : status.held);
    }
    agreement.whole = covers(agreement.held, elements);
    if (agreement.whole) break;
  }
  return agreement;
}

std::vector<ElementRange> cut_for(const std::vector<bool>& stays, uint32_t ranks,
                                  uint64_t elements) {
  CKPT_ASSERT(stays.empty() || stays.size() == ranks);
  const auto left = stays.empty() ? ranks : static_cast<uint32_t>(std::ranges::count(stays, true));
  std::vector<ElementRange> parts(ranks);
  uint32_t part = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (stays.empty() || stays[rank]) parts[rank] = part_of(elements, part++, left);
  }
  return parts;
}

RecutPlan plan_recut(const RecutRequest& request) {
  CKPT_ASSERT(request.held.size() == request.wanted.size());
  const uint64_t budget = request.buffer_bytes / 2;
  // Small beside the budget, so that rounds fill up.
  const uint64_t room = std::max(budget / 8, request.bytes_per_piece) - request.bytes_per_piece;
  const uint64_t piece_max = std::max<uint64_t>(room / request.bytes_per_element, 1);
  RecutPlan plan;
  std::vector<MovingItem> items;
  add_experts(request, piece_max, plan, items);
  add_dense(request, piece_max, plan, items);
  plan.moves = plan_migration(items, static_cast<uint32_t>(request.held.size()), budget);
  for (const std::vector<Move>& round : plan.moves.rounds) {
    plan.moves.bytes -= round.size() * request.bytes_per_piece;
  }
  return plan;
}

}  // namespace moetrain
