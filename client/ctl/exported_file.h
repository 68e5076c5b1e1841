// Descriptions of an export's files, as ckptd.json lists them (manifest.h).
#pragma once

#include <optional>
#include <string>

#include "client/ctl/input_file.h"
#include "client/ctl/manifest.h"

namespace ckptctl {

// Describes a file of this size that begins with `head`. crc32c: of the whole file.
ExportedFile describe_file(std::string name, uint64_t bytes, ckpt::ByteView head,
                           std::optional<uint32_t> crc32c);

// Describes a file from its size and its head: for a file of tensors, its header. Does not read the
// rest, so the result has no crc32c.
Result<ExportedFile> measure_head(const std::string& name, const InputFile& file);

// True if the descriptions agree in all but crc32c.
bool same_head(const ExportedFile& a, const ExportedFile& b);

}  // namespace ckptctl
