#include "client/ctl/exported_file.h"

#include <algorithm>

#include "client/ctl/weight_index.h"
#include "formats/base/crc32c.h"
#include "formats/safetensors.h"

namespace ckptctl {

ExportedFile describe_file(std::string name, uint64_t bytes, ckpt::ByteView head,
                           std::optional<uint32_t> crc32c) {
  return {std::move(name), bytes, head.size(), ckpt::base::crc32c(head), crc32c};
}

Result<ExportedFile> measure_head(const std::string& name, const InputFile& file) {
  uint64_t head_bytes = file.bytes();
  if (is_weight_file(name)) {
    CKPT_ASSIGN(const auto length, file.read_head(ckpt::safetensors::kLengthBytes));
    const auto bytes = ckpt::safetensors::header_bytes(length, file.bytes());
    if (bytes.ok()) head_bytes = *bytes;
  }
  CKPT_ASSIGN(const auto head,
              file.read_head(std::min(head_bytes, ckpt::safetensors::kHeaderBytesMax)));
  return describe_file(name, file.bytes(), head, std::nullopt);
}

bool same_head(const ExportedFile& a, const ExportedFile& b) {
  return a.name == b.name && a.bytes == b.bytes && a.head_bytes == b.head_bytes &&
         a.head_crc32c == b.head_crc32c;
}

}  // namespace ckptctl
