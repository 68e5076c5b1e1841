// BaseReader: reads the bytes of earlier versions, as bases of deltas.
//
// Bases are read back from disk, decoded if they are encoded, and checked, together with the
// headers of their extents: a restart accepts a commit only if all headers that it names are valid.
// Bases that cannot be read are left out: then there is no delta. The time of reads is counted per
// slab; beyond the limit, the rest of the slab has no bases. The caller ensures that the bytes are
// not reclaimed meanwhile, and that a request fits into memory. Loop thread; decoding runs on the
// executor.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "ckptd/codec/base_source.h"
#include "ckptd/dedup/dedup_plan.h"
#include "ckptd/restore/context.h"

namespace ckptd {

using Time = std::chrono::nanoseconds;

class BaseReader {
 public:
  // bytes_min: minimum size that makes a read worthwhile.
  BaseReader(const RestoreContext& context, uint64_t bytes_min)
      : context_(context), bytes_min_(bytes_min) {}
  ~BaseReader();  // asserts that no read is in flight
  BaseReader(const BaseReader&) = delete;
  BaseReader& operator=(const BaseReader&) = delete;

  // Source for one slab: `bases` are places of its pieces, none of them a delta; `extents` are
  // their extents, each once. The reader outlives the result.
  struct Base {
    ckpt::UnitId unit = 0;
    FragmentPlace place;
  };
  std::shared_ptr<BaseSource> of_slab(std::vector<Base> bases, std::vector<DedupExtent> extents);
  void tick(Time now) { now_ = now; }
  uint64_t read_bytes() const { return read_bytes_; }  // since startup

 private:
  class Slab;
  const RestoreContext context_;
  const uint64_t bytes_min_;
  Time now_{};
  uint64_t read_bytes_ = 0;
  size_t reads_ = 0;  // in flight
};

}  // namespace ckptd
