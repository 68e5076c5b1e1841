// The two real engines by name. open_disk() chooses; tests and benches ask for one.
#pragma once

#include <memory>
#include <string>

#include "ckptd/io/disk.h"

namespace ckptd {

// kUnavailable where the kernel or its policy has no io_uring for us (seccomp, io_uring_disabled).
Result<std::unique_ptr<Disk>> open_uring_disk(const std::string& root);
Result<std::unique_ptr<Disk>> open_pwritev_disk(const std::string& root);

}  // namespace ckptd
