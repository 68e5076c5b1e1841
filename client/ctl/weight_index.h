// model.safetensors.index.json: which file of a model folder has which tensor. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "client/ctl/pages.h"
#include "formats/base/result.h"
#include "formats/safetensors.h"

namespace ckptctl {

// One file of tensors, its header read and checked.
struct TensorFile {
  std::string name;  // relative to the folder
  ckpt::safetensors::Header header;
};

// True for a relative path that stays in its folder and ends with ".safetensors".
bool is_weight_file(std::string_view name);

// A model.safetensors.index.json. Every file in it is a name that stays in the folder.
class WeightIndex {
 public:
  static ckpt::Result<WeightIndex> parse(std::string_view text);

  // The names of its files, in order.
  std::vector<std::string> files() const;
  // Fails unless each tensor is in the file that the index names. Returns tensors missing from the
  // index. Loaders read whole files, so this is harmless.
  ckpt::Result<std::vector<std::string>> check(const std::vector<TensorFile>& files) const;
  // File by tensor.
  const std::map<std::string, std::string>& map() const { return map_; }

 private:
  std::map<std::string, std::string> map_;
};

}  // namespace ckptctl
