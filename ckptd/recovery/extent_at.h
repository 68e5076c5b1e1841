// Startup: the extent header at a possible position in a segment file.
#pragma once

#include <optional>

#include "ckptd/history/recovered_store.h"
#include "formats/segment.h"

namespace ckptd {

// The header at `offset`; nullopt: no valid header of this store is there. `read` takes an offset
// and a number of bytes, and returns a Result<ByteView>, shorter at the end of the file. A header
// larger than a block is read again as a whole.
template <typename Read>
Result<std::optional<ckpt::ExtentHeader>> extent_at(const RecoveredStore& store,
                                                    ckpt::SegmentId segment, uint64_t offset,
                                                    Read&& read) {
  CKPT_ASSIGN(const ckpt::ByteView block, read(offset, ckpt::kBlockBytes));
  if (block.size() < ckpt::kBlockBytes) return std::optional<ckpt::ExtentHeader>();
  auto header = ckpt::decode_extent_header(block);
  if (!header.ok() && header.error().code == ckpt::ErrorCode::kInvalidArgument) {
    CKPT_ASSIGN(const ckpt::ByteView whole, read(offset, ckpt::kExtentHeaderBytesMax));
    header = ckpt::decode_extent_header(whole);
  }
  const bool ours = header.ok() && header->store == store.id && header->segment == segment &&
                    header->offset == offset;
  if (!ours) return std::optional<ckpt::ExtentHeader>();
  return std::optional<ckpt::ExtentHeader>(*std::move(header));
}

}  // namespace ckptd
