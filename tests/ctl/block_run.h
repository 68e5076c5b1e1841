// BlockRun: a run in memory, made of random tensors, stored whole, in blocks or in slices.
#pragma once

#include <fmt/format.h>

#include <random>
#include <string>
#include <vector>

#include "client/ctl/block_names.h"
#include "client/ctl/expert_names.h"
#include "client/ctl/view.h"

namespace ckptctl {

using Bytes = std::vector<std::byte>;
using Shape = std::vector<uint64_t>;

// A tensor as in a model's files.
struct WholeTensor {
  ckpt::DType dtype = ckpt::DType::kU8;
  Shape shape;
  Bytes bytes;
};

// The elements whose index along `dim` is in [start, stop), in their order.
inline WholeTensor part_of_tensor(const WholeTensor& whole, size_t dim, uint64_t start,
                                  uint64_t stop) {
  WholeTensor part{whole.dtype, whole.shape, {}};
  part.shape[dim] = stop - start;
  uint64_t inner = ckpt::dtype_bytes(whole.dtype);
  for (size_t i = dim + 1; i < whole.shape.size(); ++i) inner *= whole.shape[i];
  for (uint64_t at = 0; at < whole.bytes.size(); ++at) {
    const uint64_t index = at / inner % whole.shape[dim];
    if (index >= start && index < stop) part.bytes.push_back(whole.bytes[at]);
  }
  return part;
}

// A run in memory, made of random tensors.
class BlockRun {
 public:
  explicit BlockRun(uint64_t seed, size_t units) : random_(seed), bytes_(units) {
    for (size_t i = 0; i < units; ++i) {
      schema_.units.push_back(
          {.id = static_cast<ckpt::UnitId>(i), .name = fmt::format("unit.{}", i)});
    }
  }

  uint64_t number(uint64_t least, uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(least, most)(random_);
  }
  WholeTensor make(Shape shape) {
    using ckpt::DType;
    const std::vector<DType> dtypes = {DType::kU8, DType::kBF16, DType::kF32, DType::kC64};
    WholeTensor made{dtypes[number(0, dtypes.size() - 1)], std::move(shape), {}};
    const auto bytes = ckpt::tensor_bytes({"", made.dtype, made.shape, 0});
    for (uint64_t i = 0; i < bytes.value(); ++i) {
      made.bytes.push_back(static_cast<std::byte>(number(0, 255)));
    }
    return made;
  }
  // Adds the tensor to a random unit, perhaps behind bytes of no tensor.
  void add_whole(const std::string& name, const WholeTensor& tensor) {
    add_to(number(0, bytes_.size() - 1), name, tensor);
  }
  void add_to(size_t unit, const std::string& name, const WholeTensor& tensor) {
    for (uint64_t i = number(0, 3); i > 2; --i) bytes_[unit].push_back(std::byte{7});
    schema_.units[unit].tensors.push_back({name, tensor.dtype, tensor.shape, bytes_[unit].size()});
    bytes_[unit].insert(bytes_[unit].end(), tensor.bytes.begin(), tensor.bytes.end());
    schema_.units[unit].bytes = bytes_[unit].size();
  }
  void add_blocks(const std::string& name, const WholeTensor& tensor) {
    const size_t dim = number(1, tensor.shape.size() - 1);
    uint64_t start = 0;
    while (start < tensor.shape[dim]) {
      // The first block is not the last one.
      const uint64_t most = tensor.shape[dim] - (start == 0 ? 1 : 0);
      const uint64_t stop = number(start + 1, most);
      add_whole(block_name(name, dim, start, stop), part_of_tensor(tensor, dim, start, stop));
      start = stop;
    }
  }
  // Each slice is whole or in blocks.
  void add_slices(const std::string& name, const WholeTensor& tensor) {
    for (uint64_t i = 0; i < tensor.shape[0]; ++i) {
      WholeTensor slice = part_of_tensor(tensor, 0, i, i + 1);
      slice.shape.erase(slice.shape.begin());
      if (number(0, 1) == 0) {
        add_whole(slice_name(name, i), slice);
      } else {
        add_blocks(slice_name(name, i), slice);
      }
    }
  }

  // Slice i in unit i, of expert i.
  void add_experts(const std::string& name, const WholeTensor& tensor) {
    for (uint32_t i = 0; i < tensor.shape[0]; ++i) {
      schema_.units[i].layer = 7;
      schema_.units[i].expert = i;
      WholeTensor slice = part_of_tensor(tensor, 0, i, i + 1);
      slice.shape.erase(slice.shape.begin());
      add_to(i, slice_name(name, i), slice);
    }
  }

  const Schema& schema() const { return schema_; }
  const std::vector<Bytes>& bytes() const { return bytes_; }

 private:
  std::mt19937_64 random_;
  Schema schema_;
  std::vector<Bytes> bytes_;
};

}  // namespace ckptctl
