#include "ckptd/sources/segment/segment_source.h"

#include <utility>

#include "ckptd/io/store_paths.h"
#include "ckptd/limits.h"

namespace ckptd {

SegmentSource::SegmentSource(Disk& disk, SegmentReader& segments)
    : Source({.id = SourceId::kSegment,
              .name = "segment",
              .locates = true,
              .block_bytes = ckpt::kBlockBytes,
              .read_bytes_max = limits::kWritePieceBytes}),
      disk_(disk),
      segments_(segments) {}

std::optional<Address> SegmentSource::can_serve(const FragmentName& fragment) const {
  if (fragment.stored.segment == kNoSegment) return std::nullopt;
  return Address{fragment.stored.segment, fragment.stored.payload_offset};
}

std::string SegmentSource::describe(const Address& address) const {
  return fmt::format("segment {} offset {}", address.container, address.offset);
}

std::optional<Address> SegmentSource::delta_base(const FragmentPlace& stored) const {
  if (!stored.base) return std::nullopt;
  return Address{stored.base->segment, stored.base->payload_offset};
}

void SegmentSource::open(const Address& address, std::function<void(Result<SourceLease>)> then) {
  segments_.open(address.container, [then = std::move(then)](Result<SegmentHandle> file) {
    if (!file.ok()) return then(file.error());
    then(SourceLease(std::move(file).value()));
  });
}

ReadTicket SegmentSource::read(const SourceLease& lease, SourceRead read) {
  disk_.submit({.op = IoOp::kRead,
                .file = *static_cast<const FileId*>(lease.get()),
                .offset = read.from.offset,
                .memory = read.into,
                .buffer = read.buffer,
                .on_done = std::move(read.on_done)});
  return 0;
}

Result<ckpt::base::UniqueFd> SegmentSource::locate(const Address& address) {
  return disk_.share(segment_path(address.container));
}

}  // namespace ckptd
