#include "client/ctl/logical_tensors.h"

#include <unordered_map>
#include <unordered_set>

#include "client/ctl/expert_names.h"
#include "formats/base/printable.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

class Joiner {
 public:
  Joiner(const std::vector<UnitTensor>& tensors, const OriginalFiles& originals)
      : tensors_(tensors) {
    for (const OriginalFiles::File& file : originals.files) {
      for (const auto& tensor : file.tensors.header.tensors) {
        if (!tensor.shape.empty()) stacked_.emplace(tensor.name, &tensor);
      }
    }
  }

  Result<std::vector<LogicalTensor>> run() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (by_name_.emplace(tensors_[i].tensor.name, i).second) continue;
      return make_error(ErrorCode::kFailedPrecondition,
                        "unit {} tensor {}: another unit has a tensor of that name",
                        tensors_[i].unit->name, ckpt::base::printable(tensors_[i].tensor.name));
    }
    std::vector<LogicalTensor> joined;
    for (const UnitTensor& one : tensors_) {
      if (taken_.contains(one.tensor.name)) continue;
      const auto slice = parse_slice_name(one.tensor.name);
      const auto whole = slice ? stacked_.find(slice->tensor) : stacked_.end();
      if (whole != stacked_.end() && join(*whole->second, joined)) continue;
      CKPT_ASSIGN(const uint64_t bytes, ckpt::tensor_bytes(one.tensor));
      joined.push_back({one.unit->name,
                        one.tensor.name,
                        one.tensor.dtype,
                        one.tensor.shape,
                        bytes,
                        {{one.unit->id, one.tensor.offset, bytes, 0, 0}}});
    }
    return joined;
  }

 private:
  // False if a slice is missing or does not belong to this tensor.
  bool join(const ckpt::safetensors::Tensor& whole, std::vector<LogicalTensor>& joined) {
    LogicalTensor tensor{"", whole.name, whole.dtype, whole.shape, whole.end - whole.begin, {}};
    if (by_name_.contains(whole.name) || whole.shape[0] > tensors_.size()) return false;
    const std::vector<uint64_t> shape(whole.shape.begin() + 1, whole.shape.end());
    uint64_t bytes_left = tensor.bytes;
    for (uint64_t i = 0; i < whole.shape[0]; ++i) {
      const auto found = by_name_.find(slice_name(whole.name, i));
      if (found == by_name_.end()) return false;
      const UnitTensor& slice = tensors_[found->second];
      const auto bytes = ckpt::tensor_bytes(slice.tensor);
      const bool fits = bytes.ok() && *bytes <= bytes_left && slice.tensor.dtype == whole.dtype &&
                        slice.tensor.shape == shape;
      if (!fits) return false;
      bytes_left -= *bytes;
      tensor.pieces.push_back({slice.unit->id, slice.tensor.offset, *bytes, 0, 0});
      if (i == 0) tensor.unit = slice.unit->name;
    }
    if (bytes_left != 0) return false;
    for (uint64_t i = 0; i < whole.shape[0]; ++i) taken_.insert(slice_name(whole.name, i));
    joined.push_back(std::move(tensor));
    return true;
  }

  const std::vector<UnitTensor>& tensors_;
  std::unordered_map<std::string_view, const ckpt::safetensors::Tensor*> stacked_;
  std::unordered_map<std::string_view, size_t> by_name_;
  std::unordered_set<std::string> taken_;
};

}  // namespace

Result<std::vector<LogicalTensor>> join_slices(const std::vector<UnitTensor>& tensors,
                                               const OriginalFiles& originals) {
  return Joiner(tensors, originals).run();
}

}  // namespace ckptctl
