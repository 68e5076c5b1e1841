// SegmentSource: the segment files of the store, as a source of restores. The container of an
// address is the segment's number, the offset is in its file.
#pragma once

#include "ckptd/io/disk.h"
#include "ckptd/restore/segment_reader.h"
#include "ckptd/sources/source.h"

namespace ckptd {

class SegmentSource : public Source {
 public:
  SegmentSource(Disk& disk, SegmentReader& segments);

  std::optional<Address> can_serve(const FragmentName& fragment) const override;
  std::string describe(const Address& address) const override;
  std::optional<Address> delta_base(const FragmentPlace& stored) const override;
  // Checks the header of the file before its first read.
  void open(const Address& address, std::function<void(Result<SourceLease>)> then) override;
  ReadTicket read(const SourceLease& lease, SourceRead read) override;
  Result<ckpt::base::UniqueFd> locate(const Address& address) override;

 private:
  Disk& disk_;
  SegmentReader& segments_;
};

}  // namespace ckptd
