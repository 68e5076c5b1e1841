// model.safetensors.index.json: which file of a model folder has which tensor. Pure.
#pragma once

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

// The names of the files that an index lists, in order. A name that reaches out of the folder is
// refused.
ckpt::Result<std::vector<std::string>> files_of_index(std::string_view text);

// The tensors that an index lists.
ckpt::Result<std::vector<std::string>> tensors_of_index(std::string_view text);

// Each tensor that the index lists is to be in the file that it names. Returns the tensors that the
// index leaves out, of which readers make nothing: they load whole files.
ckpt::Result<std::vector<std::string>> check_index(std::string_view text,
                                                   const std::vector<TensorFile>& files);

}  // namespace ckptctl
