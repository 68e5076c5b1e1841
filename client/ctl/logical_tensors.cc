#include "client/ctl/logical_tensors.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "client/ctl/block_names.h"
#include "client/ctl/expert_names.h"
#include "formats/base/printable.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using Names = std::unordered_set<std::string_view>;
// Tensors of the imported files.
using OriginalTensors = std::unordered_map<std::string_view, const ckpt::safetensors::Tensor*>;

OriginalTensors tensors_of(const OriginalFiles& originals) {
  OriginalTensors tensors;
  for (const OriginalFiles::File& file : originals.files) {
    for (const auto& tensor : file.tensors.header.tensors) tensors.emplace(tensor.name, &tensor);
  }
  return tensors;
}

Result<Names> names_of_all(const std::vector<UnitTensor>& tensors) {
  Names names;
  for (const UnitTensor& one : tensors) {
    if (names.insert(one.tensor.name).second) continue;
    return make_error(ErrorCode::kFailedPrecondition,
                      "unit {} tensor {}: another unit has a tensor of that name", one.unit->name,
                      ckpt::base::printable(one.tensor.name));
  }
  return names;
}

Result<LogicalTensor> as_it_is(const UnitTensor& one) {
  CKPT_ASSIGN(const uint64_t bytes, ckpt::tensor_bytes(one.tensor));
  return LogicalTensor{one.tensor.name,
                       one.tensor.dtype,
                       one.tensor.shape,
                       bytes,
                       {{one.unit->id, one.tensor.offset, bytes}}};
}

// ---- blocks -------------------------------------------------------------------------------------

class BlockJoiner {
 public:
  BlockJoiner(const std::vector<UnitTensor>& tensors, const Names& names,
              const OriginalTensors& originals)
      : tensors_(tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::string& name = tensors[i].tensor.name;
      const auto block = parse_block_name(name);
      if (!block || names.contains(block->base)) continue;
      Group& group = groups_[block->base];
      group.as_imported = group.as_imported || originals.contains(name);
      group.blocks.push_back({*block, i});
    }
  }

  Result<std::vector<LogicalTensor>> run() {
    std::vector<LogicalTensor> joined;
    std::vector<bool> taken(tensors_.size());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (taken[i]) continue;
      CKPT_ASSIGN(LogicalTensor tensor, as_it_is(tensors_[i]));
      const auto block = parse_block_name(tensors_[i].tensor.name);
      const auto group = block ? groups_.find(block->base) : groups_.end();
      if (group != groups_.end()) {
        if (auto whole = join(group->second)) {
          for (const Block& part : group->second.blocks) taken[part.tensor] = true;
          tensor = *std::move(whole);
        }
        groups_.erase(group);  // each group is tried once
      }
      joined.push_back(std::move(tensor));
    }
    return joined;
  }

 private:
  struct Block {
    BlockName name;
    size_t tensor = 0;  // index
  };
  // Blocks of the same base.
  struct Group {
    std::vector<Block> blocks;
    bool as_imported = false;  // an imported file has one of them
  };

  const ckpt::TensorSpec& spec(const Block& block) const { return tensors_[block.tensor].tensor; }

  // True if the block follows one that ends at `start`, and differs from `like` in one extent only.
  bool follows(const Block& block, uint64_t start, const Block& like) const {
    const ckpt::TensorSpec& tensor = spec(block);
    const size_t dim = block.name.dim;
    if (dim != like.name.dim || block.name.start != start || tensor.shape.size() <= dim) {
      return false;
    }
    std::vector<uint64_t> shape = spec(like).shape;
    shape[dim] = block.name.stop - block.name.start;
    return tensor.dtype == spec(like).dtype && tensor.shape == shape;
  }

  // Sorts the group.
  std::optional<LogicalTensor> join(Group& group) const {
    std::vector<Block>& blocks = group.blocks;
    if (blocks.size() < 2 || group.as_imported) return std::nullopt;
    std::ranges::sort(blocks, {}, [](const Block& block) { return block.name.start; });
    const Block& first = blocks[0];
    const size_t dim = first.name.dim;
    if (spec(first).shape.size() <= dim) return std::nullopt;
    uint64_t extent = 0;
    for (const Block& block : blocks) {
      if (!follows(block, extent, first)) return std::nullopt;
      extent = block.name.stop;
    }
    ckpt::TensorSpec whole{std::string(first.name.base), spec(first).dtype, spec(first).shape, 0};
    whole.shape[dim] = extent;
    const auto bytes = ckpt::tensor_bytes(whole);
    if (!bytes.ok()) return std::nullopt;
    LogicalTensor joined{std::move(whole.name), whole.dtype, std::move(whole.shape), *bytes, {}};
    if (*bytes > 0 && !add_pieces(blocks, joined)) return std::nullopt;
    return joined;
  }

  // False if a run of a block is not of whole bytes.
  bool add_pieces(const std::vector<Block>& blocks, LogicalTensor& joined) const {
    uint64_t rows = 1;
    for (size_t i = 0; i < blocks[0].name.dim; ++i) rows *= joined.shape[i];
    uint64_t at = 0;
    for (const Block& block : blocks) {
      const auto bytes = ckpt::tensor_bytes(spec(block));
      if (!bytes.ok() || *bytes % rows != 0) return false;
      WantedBytes piece{tensors_[block.tensor].unit->id, spec(block).offset, *bytes, at};
      const uint64_t run = *bytes / rows;
      if (rows > 1) {
        piece.run = run;
        piece.step = joined.bytes / rows;
      }
      joined.pieces.push_back(piece);
      at += run;
    }
    return true;
  }

  const std::vector<UnitTensor>& tensors_;
  std::unordered_map<std::string_view, Group> groups_;  // by base
};

// ---- slices -------------------------------------------------------------------------------------

class SliceJoiner {
 public:
  SliceJoiner(std::vector<LogicalTensor> tensors, OriginalTensors originals)
      : tensors_(std::move(tensors)), originals_(std::move(originals)) {
    for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
  }

  std::vector<LogicalTensor> run() {
    std::vector<LogicalTensor> joined;
    std::vector<bool> taken(tensors_.size());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (taken[i]) continue;
      const auto slice = parse_slice_name(tensors_[i].name);
      const auto whole = slice ? originals_.find(slice->tensor) : originals_.end();
      if (whole != originals_.end()) {
        const auto slices = find_slices(*whole->second);
        for (const size_t part : slices) taken[part] = true;
        if (!slices.empty()) joined.push_back(join(*whole->second, slices));
        originals_.erase(whole);  // each tensor is tried once
      }
      if (!taken[i]) joined.push_back(tensors_[i]);
    }
    return joined;
  }

 private:
  // Indexes of all slices; empty if one is missing or does not belong to this tensor.
  std::vector<size_t> find_slices(const ckpt::safetensors::Tensor& whole) const {
    // A block that was joined had another name: blocks stay apart if `originals` has one of them.
    if (by_name_.contains(whole.name)) return {};
    if (whole.shape.empty() || whole.shape[0] > tensors_.size()) return {};
    const std::vector<uint64_t> shape(whole.shape.begin() + 1, whole.shape.end());
    uint64_t bytes_left = whole.end - whole.begin;
    std::vector<size_t> slices;
    for (uint64_t i = 0; i < whole.shape[0]; ++i) {
      const auto found = by_name_.find(slice_name(whole.name, i));
      if (found == by_name_.end()) return {};
      const LogicalTensor& slice = tensors_[found->second];
      const bool fits =
          slice.bytes <= bytes_left && slice.dtype == whole.dtype && slice.shape == shape;
      if (!fits) return {};
      bytes_left -= slice.bytes;
      slices.push_back(found->second);
    }
    return bytes_left == 0 ? slices : std::vector<size_t>();
  }

  LogicalTensor join(const ckpt::safetensors::Tensor& whole,
                     const std::vector<size_t>& slices) const {
    LogicalTensor tensor{whole.name, whole.dtype, whole.shape, 0, {}};
    for (const size_t slice : slices) {
      for (WantedBytes piece : tensors_[slice].pieces) {
        piece.destination += tensor.bytes;
        tensor.pieces.push_back(piece);
      }
      tensor.bytes += tensors_[slice].bytes;
    }
    return tensor;
  }

  std::vector<LogicalTensor> tensors_;
  OriginalTensors originals_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

}  // namespace

Result<std::vector<LogicalTensor>> join_tensors(const std::vector<UnitTensor>& tensors,
                                                const OriginalFiles& originals) {
  CKPT_ASSIGN(const Names names, names_of_all(tensors));
  OriginalTensors original_tensors = tensors_of(originals);
  CKPT_ASSIGN(std::vector<LogicalTensor> whole,
              BlockJoiner(tensors, names, original_tensors).run());
  if (original_tensors.empty()) return whole;
  return SliceJoiner(std::move(whole), std::move(original_tensors)).run();
}

}  // namespace ckptctl
