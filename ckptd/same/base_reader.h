// BaseReader: the bytes of earlier versions, for what is about to be encoded as a delta to them.
//
// They are read back from the disk with the headers of their extents, since a restart believes a
// commit only if all headers hold that it names, decoded where they are encoded, and checked. What
// cannot be had is left out: then there is no delta. The time that reads take is counted for each
// slab: once it is more than the bound, the rest of the slab has no bases. Whoever asks sees to it
// that the bytes are not given back to the disk meanwhile, and asks for so much at a time that
// there is memory for it. Loop thread; decoding runs on the executor.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "ckptd/codec/base_source.h"
#include "ckptd/restore/context.h"
#include "ckptd/same/same_plan.h"

namespace ckptd {

using Time = std::chrono::nanoseconds;

class BaseReader {
 public:
  // bytes_min: what a read is worth its while for.
  BaseReader(const RestoreContext& context, uint64_t bytes_min)
      : context_(context), bytes_min_(bytes_min) {}
  ~BaseReader();  // asserts that nothing is being read
  BaseReader(const BaseReader&) = delete;
  BaseReader& operator=(const BaseReader&) = delete;

  // Of a slab: `bases` are places of pieces of it, none of them a delta; `extents` those that they
  // lie in, each once. The reader outlives it.
  struct Base {
    ckpt::UnitId unit = 0;
    FragmentPlace place;
  };
  std::shared_ptr<BaseSource> of_slab(std::vector<Base> bases, std::vector<SameExtent> extents);
  void tick(Time now) { now_ = now; }
  uint64_t read_bytes() const { return read_bytes_; }  // since the start

 private:
  class Slab;
  const RestoreContext context_;
  const uint64_t bytes_min_;
  Time now_{};
  uint64_t read_bytes_ = 0;
  size_t reads_ = 0;  // under way
};

}  // namespace ckptd
