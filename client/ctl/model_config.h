// config.json of a model, as Python programs write it. Pure.
#pragma once

#include <string>
#include <string_view>

#include "formats/base/result.h"

namespace ckptctl {

struct ModelConfig {
  // {"hf_config": ...} for the run's metadata; empty if `note` says why there is none.
  std::string metadata;
  std::string note;
};

// Python's json module writes NaN and Infinity, editors a byte order mark or Latin-1: such a text
// is kept, but it is no JSON that metadata could hold. Fails for what is no JSON even then.
ckpt::Result<ModelConfig> read_model_config(std::string_view text);

// True if the text says what "hf_config" of the metadata says, however it is written.
bool same_config(std::string_view text, std::string_view metadata);

// The member "hf_config" of a run's metadata as config.json: indented, its numbers and strings as
// the trainer wrote them. Empty: there is none, or the metadata is no JSON object.
std::string config_of_metadata(std::string_view metadata);

}  // namespace ckptctl
