// Floats of a snapshot that are NaN or infinite. The thread that checks a slab scans its bytes
// piece by piece, while they are in the cache for the checksum.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/segment.h"
#include "formats/unit.h"

namespace ckptd {

// Number of NaN or infinite elements among whole elements of F16, BF16, F32 or F64. 0 for types
// without exponents, and for 8-bit floats, some of which have no infinity.
uint64_t count_not_finite(ckpt::DType dtype, ckpt::ByteView elements);

// Scan of one slab. Used by one thread at a time.
class NotFiniteScan {
 public:
  using Units = std::shared_ptr<const std::vector<ckpt::UnitSpec>>;
  explicit NotFiniteScan(Units units) : units_(std::move(units)) {}

  // The next bytes are [from, to) of the fragment; [0, from) were scanned before. An element counts
  // with its last byte; an element that is only partly in the fragment is skipped. The types come
  // from the unit's tensors; a unit without tensors has no floats.
  void check(const ckpt::ExtentFragment& fragment, ckpt::ByteView bytes, uint64_t from,
             uint64_t to);

  const std::map<ckpt::UnitId, uint64_t>& found() const { return found_; }

 private:
  Units units_;
  std::map<ckpt::UnitId, uint64_t> found_;
};

}  // namespace ckptd
