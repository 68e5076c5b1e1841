// Shares a descriptor of a copy, because a memory disk has no files of its own.
#include <sys/mman.h>
#include <unistd.h>

#include "ckptd/io/memory_disk.h"

namespace ckptd {

Result<ckpt::base::UniqueFd> MemoryDisk::share(std::string_view path) {
  CKPT_ASSIGN(const FileId file, open(path, {}));
  const auto bytes = size(file);
  std::vector<std::byte> content(bytes.ok() ? *bytes : 0);
  const auto read = read_now(file, 0, content);
  close(file);
  CKPT_TRY(read);
  ckpt::base::UniqueFd copy(::memfd_create("shared", MFD_CLOEXEC));
  const ssize_t size = static_cast<ssize_t>(content.size());
  if (!copy.valid() || ::write(copy.get(), content.data(), content.size()) != size) {
    return ckpt::make_error(ckpt::ErrorCode::kIo, "{}: no copy of it can be made", path);
  }
  return copy;
}

}  // namespace ckptd
