// The tensors of a model folder's files, and which parts of them the units of ckptd.json have
// taken: whole tensors, slices of stacked ones (expert_names.h), blocks (block_names.h). Pure.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "client/ctl/block_names.h"
#include "client/ctl/weight_index.h"
#include "formats/safetensors.h"

namespace ckptctl {

struct FileTensor {
  const ckpt::safetensors::Tensor* tensor = nullptr;
  size_t file = 0;                      // index
  bool used = false;                    // every byte is taken
  std::set<uint64_t> slices_used = {};  // along the first dimension
  // The taken blocks of the whole tensor (no key) or of a slice. They leave the map with the last.
  struct Blocks {
    size_t dim = 0;
    std::map<uint64_t, uint64_t> stops = {};  // by start
    uint64_t covered = 0;                     // indexes of the dimension
    uint64_t extent = 0;                      // of the dimension
  };
  std::map<std::optional<uint64_t>, Blocks> blocks = {};

  uint64_t bytes() const { return tensor->end - tensor->begin; }
};
using FileTensors = std::unordered_map<std::string_view, FileTensor>;

// By name. Fails if two files have a tensor of the same name. The files must outlive the result.
ckpt::Result<FileTensors> find_tensors(const std::vector<TensorFile>& files);

// A part of a file's tensor that becomes a tensor of a unit.
struct FilePart {
  ckpt::TensorSpec spec;  // without an offset
  uint64_t begin = 0;     // in the data section; of the first run
  uint64_t bytes = 0;
  uint64_t run = 0;  // bytes of a run in each row; 0: the part is contiguous
  uint64_t step = 0;
};
FilePart whole_part(const ckpt::safetensors::Tensor& tensor);
// Slice `index` of the first dimension, maybe without bytes; nothing if no such index exists.
std::optional<FilePart> slice_part(const ckpt::safetensors::Tensor& tensor, uint64_t index);

// The part that ckptd.json lists under this name: the tensor of this name, else the slice or block
// of another one.
struct ListedPart {
  FileTensor* of = nullptr;
  FilePart part;
  std::optional<uint64_t> slice;
  std::optional<BlockName> block;
};
std::optional<ListedPart> find_part(FileTensors& tensors, const std::string& name);
// False: some of its bytes were taken before.
bool take_part(const ListedPart& part);
// The rest of a tensor that was taken in part, as "ckptd.json lists ..."; empty: all or none of it
// is taken.
std::string not_taken(const FileTensor& tensor);

}  // namespace ckptctl
