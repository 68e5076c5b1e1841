// The ErrorCode of a system call's errno.
#pragma once

#include "formats/base/result.h"

namespace ckpt {

// kIo: the disk lost bytes (EIO, and other errors with this meaning). kResourceExhausted: the disk
// is full, or the file has its maximum size. kNotFound, kAlreadyExists and kPermissionDenied: as
// the names say. kUnavailable: any other error, usually a shortage (EMFILE, ENOMEM); it says
// nothing about bytes on the disk.
ErrorCode code_of_errno(int error);

}  // namespace ckpt
