// Model files: a CostModel as TOML, one table for each section, every key there exactly once.
#pragma once

#include <string>
#include <string_view>

#include "trainer/simulate/cost_model.h"
#include "trainer/simulate/parameter_file.h"

namespace moetrain::simulate {

// kInvalidArgument, with file, line and key: no TOML; an unknown section or key; a missing key; a
// value that is no number or out of its range; what validate() refuses. At most kModelFileMax
// bytes.
Result<CostModel> parse_model(std::string_view text, const std::string& origin);
Result<CostModel> read_model(const std::string& path);

// The file that parse_model() reads back to the same model. `comments` says more: [i] belongs to
// parameters()[i]; empty: none.
std::string model_text(const CostModel& model, std::span<const std::string> comments = {});

// A whole regular file of text. kNotFound, kIo; kInvalidArgument: it is another kind of file, or
// has more than `bytes_max` bytes.
Result<std::string> read_text(const std::string& path, size_t bytes_max);

}  // namespace moetrain::simulate
