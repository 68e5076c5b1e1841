#include "client/ctl/file_tensors.h"

#include <fmt/format.h>

#include <iterator>

#include "client/ctl/expert_names.h"
#include "client/ctl/manifest.h"
#include "formats/base/printable.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::base::printable;

// The block of a contiguous part; nothing if the block lies beyond the part, or its runs are not of
// whole bytes.
std::optional<FilePart> block_part(const FilePart& base, const BlockName& name) {
  const std::vector<uint64_t>& shape = base.spec.shape;
  if (name.dim >= shape.size() || name.stop > shape[name.dim]) return std::nullopt;
  FilePart part = base;
  part.spec.shape[name.dim] = name.stop - name.start;
  part.bytes = 0;
  if (base.bytes == 0) return part;
  // At most the number of elements, which fits.
  uint64_t rows = 1;
  for (size_t i = 0; i < name.dim; ++i) rows *= shape[i];
  ckpt::TensorSpec before = part.spec;
  before.shape[name.dim] = name.start;
  const auto bytes = ckpt::tensor_bytes(part.spec);
  const auto bytes_before = ckpt::tensor_bytes(before);
  if (!bytes.ok() || !bytes_before.ok()) return std::nullopt;
  if (*bytes % rows != 0 || *bytes_before % rows != 0) return std::nullopt;
  part.bytes = *bytes;
  part.begin += *bytes_before / rows;
  if (rows > 1) {
    part.run = *bytes / rows;
    part.step = base.bytes / rows;
  }
  return part;
}

// False if an index of the block was taken before.
bool take_block(FileTensor::Blocks& blocks, const BlockName& name, uint64_t extent) {
  if (blocks.stops.empty()) {
    blocks.dim = name.dim;
    blocks.extent = extent;
  }
  if (blocks.dim != name.dim) return false;
  const auto next = blocks.stops.lower_bound(name.start);
  if (next != blocks.stops.end() && next->first < name.stop) return false;
  if (next != blocks.stops.begin() && std::prev(next)->second > name.start) return false;
  blocks.stops.emplace_hint(next, name.start, name.stop);
  blocks.covered += name.stop - name.start;
  return true;
}

}  // namespace

ckpt::Result<FileTensors> find_tensors(const std::vector<TensorFile>& files) {
  FileTensors found;
  for (size_t i = 0; i < files.size(); ++i) {
    for (const auto& tensor : files[i].header.tensors) {
      const auto [there, added] = found.emplace(tensor.name, FileTensor{&tensor, i});
      if (added) continue;
      return make_error(ErrorCode::kFailedPrecondition, "{}: tensor {} is also in another file: {}",
                        files[i].name, printable(tensor.name), files[there->second.file].name);
    }
  }
  return found;
}

FilePart whole_part(const ckpt::safetensors::Tensor& tensor) {
  return {{tensor.name, tensor.dtype, tensor.shape, 0}, tensor.begin, tensor.end - tensor.begin};
}

std::optional<FilePart> slice_part(const ckpt::safetensors::Tensor& tensor, uint64_t index) {
  if (tensor.shape.empty() || index >= tensor.shape[0]) return std::nullopt;
  FilePart part;
  part.spec.name = slice_name(tensor.name, index);
  part.spec.dtype = tensor.dtype;
  part.spec.shape.assign(tensor.shape.begin() + 1, tensor.shape.end());
  const auto bytes = ckpt::tensor_bytes(part.spec);
  if (!bytes.ok()) return std::nullopt;
  part.bytes = *bytes;
  part.begin = tensor.begin + index * part.bytes;
  return part;
}

std::optional<ListedPart> find_part(FileTensors& tensors, const std::string& name) {
  ListedPart listed;
  std::optional<FilePart> part;
  auto found = tensors.find(name);
  if (found == tensors.end()) listed.block = parse_block_name(name);
  const std::string_view base = listed.block ? listed.block->base : std::string_view(name);
  if (found == tensors.end()) found = tensors.find(base);
  if (found != tensors.end()) {
    part = whole_part(*found->second.tensor);
  } else if (const auto slice = parse_slice_name(base)) {
    found = tensors.find(slice->tensor);
    if (found != tensors.end()) part = slice_part(*found->second.tensor, slice->index);
    listed.slice = slice->index;
  }
  if (part && listed.block) part = block_part(*part, *listed.block);
  if (!part) return std::nullopt;
  listed.of = &found->second;
  listed.part = *std::move(part);
  return listed;
}

bool take_part(const ListedPart& listed) {
  FileTensor& of = *listed.of;
  auto& blocks = of.blocks;
  const std::vector<uint64_t>& shape = of.tensor->shape;
  const bool as_whole = blocks.contains(std::nullopt);
  const bool in_slices = !of.slices_used.empty() || (!blocks.empty() && !as_whole);
  if (of.used || (listed.slice ? as_whole : in_slices)) return false;
  if (listed.slice && of.slices_used.contains(*listed.slice)) return false;
  if (!listed.block && blocks.contains(listed.slice)) return false;
  if (listed.block) {
    FileTensor::Blocks& taken = blocks[listed.slice];
    // Dimension `dim` of a slice is the next one of its tensor.
    const uint64_t extent = shape[listed.block->dim + (listed.slice ? 1 : 0)];
    if (!take_block(taken, *listed.block, extent)) return false;
    if (taken.covered < extent) return true;
    blocks.erase(listed.slice);
  }
  if (listed.slice) of.slices_used.insert(*listed.slice);
  of.used = !listed.slice || of.slices_used.size() == shape[0];
  return true;
}

std::string not_taken(const FileTensor& tensor) {
  const std::string& name = tensor.tensor->name;
  if (!tensor.blocks.empty()) {
    const auto& [slice, blocks] = *tensor.blocks.begin();
    return fmt::format("{} lists blocks of {} with only {} of the {} indexes of dimension {}",
                       kManifestName, printable(slice ? slice_name(name, *slice) : name),
                       blocks.covered, blocks.extent, blocks.dim);
  }
  if (tensor.used || tensor.slices_used.empty()) return "";
  return fmt::format("{} lists only {} of its {} slices", kManifestName, tensor.slices_used.size(),
                     tensor.tensor->shape[0]);
}

}  // namespace ckptctl
