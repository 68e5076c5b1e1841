// The two engines for real disks. open_disk() chooses; tests and benches open one directly.
#pragma once

#include <memory>
#include <string>

#include "ckptd/io/disk.h"

namespace ckptd {

// kUnavailable if the kernel or its policy denies io_uring (seccomp, io_uring_disabled).
Result<std::unique_ptr<Disk>> open_uring_disk(const std::string& root);
Result<std::unique_ptr<Disk>> open_pwritev_disk(const std::string& root);

}  // namespace ckptd
