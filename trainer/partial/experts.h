// ExpertGrid: the experts of a model as one list, layer by layer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moetrain {

// Everything that is kept for each expert is a vector of size() values; expert e of layer l is at
// position at(l, e).
struct ExpertGrid {
  uint32_t layers = 0;
  uint32_t experts = 0;  // per layer

  size_t size() const { return size_t{layers} * experts; }
  size_t at(uint32_t layer, uint32_t expert) const { return size_t{layer} * experts + expert; }
  bool operator==(const ExpertGrid&) const = default;
};

}  // namespace moetrain
