// The unit "ckptd.files" of an imported run: what an export needs, beside the tensors' bytes, to
// write the imported files again as they were.
//
// Its tensors are U8 and named "ckptd.file:NAME": of each file of tensors the header, of
// config.json and the index all bytes. They follow each other in the order of the files. Tensors of
// the model that have no bytes are listed in the same unit, since a unit of no bytes cannot be.
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
// The unit of a trainer's own state. It holds no model.
inline constexpr std::string_view kTrainerUnit = "trainer";

// The name of the tensor that keeps bytes of this file, and the way back; empty: another tensor.
std::string kept_tensor(std::string_view file);
std::string_view kept_file(const ckpt::TensorSpec& tensor);

// What a run remembers of the files that it was imported from.
struct OriginalFiles {
  struct File {
    TensorFile tensors;
    std::vector<std::byte> header;
  };
  struct Text {
    std::string name;
    std::vector<std::byte> bytes;
  };
  std::vector<File> files;  // none: the run was not imported, or by an older version
  std::vector<Text> texts;  // config.json and the index, as far as there were any
  bool empty() const { return files.empty(); }
  const Text* text(std::string_view name) const;
};

// Takes the unit apart. A trainer may have registered a unit of this name, so nothing in it is
// trusted: names stay in their folder, headers are whole.
Result<OriginalFiles> parse_original_files(const ViewUnit& unit, ckpt::ByteView bytes);

// Reads the unit of a view; nothing is in the result if the run has none.
Result<OriginalFiles> load_original_files(Link& link, const View& view, const Schema& schema);

}  // namespace ckptctl
