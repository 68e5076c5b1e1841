#include "trainer/elastic/item_exchange.h"

#include <algorithm>
#include <cstring>

#include "formats/base/assert.h"
#include "formats/base/crc32c.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// A bit that flipped once does not damage so many exchanges in a row.
constexpr uint32_t kDamagedInARowMax = 3;

}  // namespace

Status ItemExchange::run(Comm& comm, const MigrationPlan& plan, MovingItems& items,
                         const std::string& where, uint64_t buffer_max) {
  buffer_max_ = buffer_max;
  buffer_bytes_ = 0;
  for (const std::vector<Move>& moves : plan.rounds) CKPT_TRY(round(comm, moves, items, where));
  damaged_in_a_row_ = 0;
  return {};
}

Status ItemExchange::round(Comm& comm, const std::vector<Move>& moves, MovingItems& items,
                           const std::string& where) {
  std::vector<int64_t> send_counts(comm.size());
  std::vector<int64_t> recv_counts(comm.size());
  std::vector<std::byte> send;
  const auto bytes_of_item = [&](uint32_t item) { return kItemHeaderBytes + items.bytes(item); };
  uint64_t sent = 0;
  uint64_t received = 0;
  for (const Move& move : moves) {
    if (move.from == comm.rank()) sent += bytes_of_item(move.item);
    if (move.to != comm.rank()) continue;
    received += bytes_of_item(move.item);
    recv_counts[move.from] += static_cast<int64_t>(bytes_of_item(move.item));
  }
  CKPT_ASSERT(sent + received <= buffer_max_);
  buffer_bytes_ = std::max(buffer_bytes_, sent + received);
  send.reserve(sent);  // growing would need the buffer twice
  for (const Move& move : moves) {
    if (move.from != comm.rank()) continue;
    const size_t begin = send.size();
    send.resize(begin + bytes_of_item(move.item));
    const std::span<std::byte> body = std::span(send).subspan(begin + kItemHeaderBytes);
    CKPT_TRY(items.read(move.item, body));
    const uint64_t crc = ckpt::base::crc32c(body);
    std::memcpy(&send[begin], &crc, sizeof crc);
    send_counts[move.to] += static_cast<int64_t>(bytes_of_item(move.item));
  }
  std::vector<std::byte> recv(received);
  CKPT_TRY(comm.all_to_all_v(std::span<const std::byte>(send), send_counts,
                             std::span<std::byte>(recv), recv_counts));
  std::span<const std::byte> rest = recv;
  for (const Move& move : moves) {
    if (move.to != comm.rank()) continue;
    const uint64_t bytes = bytes_of_item(move.item);
    CKPT_TRY(receive_item(rest.first(bytes), move, items, where));
    rest = rest.subspan(bytes);
  }
  return {};
}

Status ItemExchange::receive_item(std::span<const std::byte> bytes, const Move& move,
                                  MovingItems& items, const std::string& where) {
  uint64_t crc = 0;
  std::memcpy(&crc, bytes.data(), sizeof crc);
  const std::span<const std::byte> body = bytes.subspan(kItemHeaderBytes);
  if (crc == ckpt::base::crc32c(body)) {
    items.write(move.item, body);
    return {};
  }
  const std::string what = fmt::format("{}: {} did not come from rank {} as it was sent (CRC32C)",
                                       where, items.name(move.item), move.from);
  if (++damaged_in_a_row_ < kDamagedInARowMax) {
    return make_error(ErrorCode::kAborted, "{}; once more", what);
  }
  return make_error(ErrorCode::kCorrupt, "{}, {} times in a row", what, damaged_in_a_row_);
}

}  // namespace moetrain
