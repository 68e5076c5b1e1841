// MemorySource: the memory level, as a source of restores. Serves fragments of slabs that are kept
// in arenas of the reader's uid.
#pragma once

#include "ckptd/sources/source.h"
#include "ckptd/staging/staging.h"

namespace ckptd {

class MemorySource : public Source {
 public:
  explicit MemorySource(Staging& staging);

  // Fragments have the addresses of their copies in segments, so that both are read in one order.
  std::optional<Address> can_serve(const FragmentName& fragment) const override;
  std::string describe(const Address& address) const override;
  // Fragments that are on no disk would be lost by an eviction.
  std::shared_ptr<void> hold(const FragmentName& fragment) override;
  Result<StagedBytes> lease(const FragmentName& fragment) override;

 private:
  std::optional<MemoryLease> find(const FragmentName& fragment) const;

  Staging& staging_;
};

}  // namespace ckptd
