// Floats of a snapshot that are NaN or infinite. The bytes are looked at while they are in the
// cache for their checksum, piece by piece, on the thread that checks the slab.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/segment.h"
#include "formats/unit.h"

namespace ckptd {

// How many of the elements are NaN or infinite: whole elements of F16, BF16, F32 or F64. 0 for
// types without exponents, and for floats of 8 bits, of which some cannot say infinite.
uint64_t count_not_finite(ckpt::DType dtype, ckpt::ByteView elements);

// One slab's. Used by one thread at a time.
class NotFiniteScan {
 public:
  using Units = std::shared_ptr<const std::vector<ckpt::UnitSpec>>;
  explicit NotFiniteScan(Units units) : units_(std::move(units)) {}

  // [from, to) of the fragment's bytes come next; [0, from) were looked at before. An element is
  // counted with its last byte; one that the fragment holds only a part of is not looked at. Units
  // tell their floats by their tensors; one without tensors has none.
  void look(const ckpt::ExtentFragment& fragment, ckpt::ByteView bytes, uint64_t from, uint64_t to);

  const std::map<ckpt::UnitId, uint64_t>& found() const { return found_; }

 private:
  Units units_;
  std::map<ckpt::UnitId, uint64_t> found_;
};

}  // namespace ckptd
