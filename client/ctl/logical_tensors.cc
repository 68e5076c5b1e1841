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

// No tensor of a file may have this name.
bool is_reserved(std::string_view name) { return name == "__metadata__"; }

Result<LogicalTensor> as_it_is(const UnitTensor& one) {
  CKPT_ASSIGN(const uint64_t bytes, ckpt::tensor_bytes(one.tensor));
  return LogicalTensor{one.tensor.name,
                       one.tensor.dtype,
                       one.tensor.shape,
                       bytes,
                       {{one.unit->id, one.tensor.offset, bytes}},
                       one.unit->layer,
                       one.unit->expert};
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
      if (!block || names.contains(block->base) || is_reserved(block->base)) continue;
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

  // True if both are of the same expert, or of none.
  bool same_expert(const Block& one, const Block& other) const {
    const ViewUnit& unit = *tensors_[one.tensor].unit;
    const ViewUnit& other_unit = *tensors_[other.tensor].unit;
    return unit.layer == other_unit.layer && unit.expert == other_unit.expert;
  }

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
      if (!follows(block, extent, first) || !same_expert(block, first)) return std::nullopt;
      extent = block.name.stop;
    }
    ckpt::TensorSpec whole{std::string(first.name.base), spec(first).dtype, spec(first).shape, 0};
    whole.shape[dim] = extent;
    const auto bytes = ckpt::tensor_bytes(whole);
    if (!bytes.ok()) return std::nullopt;
    const ViewUnit& unit = *tensors_[first.tensor].unit;
    LogicalTensor joined{std::move(whole.name),
                         whole.dtype,
                         std::move(whole.shape),
                         *bytes,
                         {},
                         unit.layer,
                         unit.expert};
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
  // `names`: those of all tensors of units, also of blocks that were joined.
  SliceJoiner(std::vector<LogicalTensor> tensors, OriginalTensors originals, Names names)
      : tensors_(std::move(tensors)), originals_(std::move(originals)), names_(std::move(names)) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      names_.insert(tensors_[i].name);
      const auto slice = parse_slice_name(tensors_[i].name);
      if (slice) stacks_[slice->tensor].push_back({slice->index, i});
    }
  }

  std::vector<LogicalTensor> run() {
    std::vector<LogicalTensor> joined;
    std::vector<bool> taken(tensors_.size());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (taken[i]) continue;
      const auto slice = parse_slice_name(tensors_[i].name);
      const auto stack = slice ? stacks_.find(slice->tensor) : stacks_.end();
      if (stack != stacks_.end()) {
        const auto slices = find_slices(stack->first, stack->second);
        for (const size_t part : slices) taken[part] = true;
        if (!slices.empty()) joined.push_back(join(stack->first, slices));
        stacks_.erase(stack);  // each tensor is tried once
      }
      if (!taken[i]) joined.push_back(tensors_[i]);
    }
    return joined;
  }

 private:
  struct Slice {
    uint64_t index = 0;
    size_t tensor = 0;
  };

  // Tensors of all slices, in order; empty if they are not one tensor. Sorts the slices.
  std::vector<size_t> find_slices(std::string_view name, std::vector<Slice>& slices) const {
    if (names_.contains(name) || is_reserved(name)) return {};
    std::ranges::sort(slices, {}, &Slice::index);
    std::vector<size_t> found;
    const LogicalTensor& first = tensors_[slices[0].tensor];
    for (const Slice& slice : slices) {
      const LogicalTensor& tensor = tensors_[slice.tensor];
      if (slice.index != found.size() || tensor.dtype != first.dtype ||
          tensor.shape != first.shape) {
        return {};
      }
      found.push_back(slice.tensor);
    }
    const auto original = originals_.find(name);
    const bool one = original != originals_.end() ? is_original(*original->second, found)
                                                  : are_of_experts(found);
    return one ? found : std::vector<size_t>();
  }

  bool is_original(const ckpt::safetensors::Tensor& whole,
                   const std::vector<size_t>& slices) const {
    const LogicalTensor& first = tensors_[slices[0]];
    if (whole.shape.empty() || whole.shape[0] != slices.size()) return false;
    const std::vector<uint64_t> shape(whole.shape.begin() + 1, whole.shape.end());
    return first.dtype == whole.dtype && first.shape == shape;
  }

  // True if slice i is of expert i, all of one layer, and no imported file has it under its name.
  bool are_of_experts(const std::vector<size_t>& slices) const {
    for (size_t i = 0; i < slices.size(); ++i) {
      const LogicalTensor& slice = tensors_[slices[i]];
      if (slice.expert != i || slice.layer != tensors_[slices[0]].layer) return false;
      if (originals_.contains(slice.name)) return false;
    }
    return ckpt::tensor_bytes(stacked(slices)).ok();
  }

  ckpt::TensorSpec stacked(const std::vector<size_t>& slices) const {
    const LogicalTensor& first = tensors_[slices[0]];
    ckpt::TensorSpec whole{"", first.dtype, {slices.size()}, 0};
    whole.shape.insert(whole.shape.end(), first.shape.begin(), first.shape.end());
    return whole;
  }

  LogicalTensor join(std::string_view name, const std::vector<size_t>& slices) const {
    const ckpt::TensorSpec whole = stacked(slices);
    LogicalTensor tensor{std::string(name), whole.dtype, whole.shape, 0, {}, {}, {}};
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
  Names names_;
  std::unordered_map<std::string_view, std::vector<Slice>> stacks_;  // slices, by their tensor
};

}  // namespace

Result<std::vector<LogicalTensor>> join_tensors(const std::vector<UnitTensor>& tensors,
                                                const OriginalFiles& originals) {
  CKPT_ASSIGN(const Names names, names_of_all(tensors));
  OriginalTensors original_tensors = tensors_of(originals);
  CKPT_ASSIGN(std::vector<LogicalTensor> whole,
              BlockJoiner(tensors, names, original_tensors).run());
  return SliceJoiner(std::move(whole), std::move(original_tensors), names).run();
}

}  // namespace ckptctl
