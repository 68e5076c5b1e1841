#include "trainer/cli/temporary_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace moetrain {

ckpt::Result<TemporaryFolder> TemporaryFolder::make(const std::string& name) {
  const char* variable = ::getenv("TMPDIR");
  const bool named = variable != nullptr && *variable != '\0';
  const std::string below = named ? variable : "/tmp";
  std::string path = below + "/" + name + "-XXXXXX";
  if (::mkdtemp(path.data()) != nullptr) return TemporaryFolder(path);
  return ckpt::make_error(ckpt::ErrorCode::kIo,
                          "cannot make a temporary folder in {}{}: {}; set TMPDIR to a folder that "
                          "can be written",
                          named ? "TMPDIR=" : "", below, std::strerror(errno));
}

void TemporaryFolder::remove() const {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace moetrain
