// The unit "ckptd.files" of an imported run: the data, beside the tensors' bytes, that an export
// needs to reproduce the imported files.
//
// Its tensors are U8 and named "ckptd.file:NAME": the header of each tensor file, all bytes of
// config.json and of the index. They follow each other in the order of the files. The model's
// tensors without bytes are listed in the same unit, since a unit cannot be empty.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/ctl/view.h"
#include "client/ctl/weight_index.h"

namespace ckptctl {

inline constexpr std::string_view kFilesUnit = "ckptd.files";
// The headers of a model of a million tensors, and a few texts.
inline constexpr uint64_t kFilesUnitBytesMax = 1ull << 30;
// The unit of a trainer's own state. It contains no model.
inline constexpr std::string_view kTrainerUnit = "trainer";

// Name of the tensor that stores this file's bytes, and the reverse; empty: another tensor.
std::string kept_tensor(std::string_view file);
std::string_view kept_file(const ckpt::TensorSpec& tensor);

// A run's record of the files that it was imported from.
struct OriginalFiles {
  struct File {
    TensorFile tensors;
    std::vector<std::byte> header;
  };
  struct Text {
    std::string name;
    std::vector<std::byte> bytes;
  };
  std::vector<File> files;  // empty: the run was not imported, or by an older version
  std::vector<Text> texts;  // config.json and the index, if they existed
  bool empty() const { return files.empty(); }
  const Text* text(std::string_view name) const;
};

// Parses the unit. A trainer may have registered a unit of this name, so its content is untrusted:
// checks that names stay in their folder and that headers are complete.
Result<OriginalFiles> parse_original_files(const ViewUnit& unit, ckpt::ByteView bytes);

// Reads the unit of a view; the result is empty if the run has no such unit.
Result<OriginalFiles> load_original_files(Link& link, const View& view, const Schema& schema);

}  // namespace ckptctl
