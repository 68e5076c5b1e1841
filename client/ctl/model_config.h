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

// Python's json module writes NaN and Infinity, numbers of any size and unpaired surrogates;
// editors write a byte order mark or Latin-1. Such a text is kept, but cannot become metadata.
// Fails if the text is not JSON even then.
ckpt::Result<ModelConfig> read_model_config(std::string_view text);

// True if the text and "hf_config" of the metadata have the same value, in any formatting.
bool same_config(std::string_view text, std::string_view metadata);

// The member "hf_config" of a run's metadata as config.json: indented, with numbers and strings
// unchanged. Empty if there is none, or if the metadata is no JSON object.
std::string config_of_metadata(std::string_view metadata);

}  // namespace ckptctl
