// The ErrorCode of a system call's errno.
#pragma once

#include "formats/base/result.h"

namespace ckpt {

// kIo: the disk lost bytes (EIO and what other layers say instead). kResourceExhausted: the disk is
// full, or the file as large as it may be. kNotFound, kAlreadyExists and kPermissionDenied as their
// names say. kUnavailable: anything else, a shortage as a rule (EMFILE, ENOMEM); it says nothing
// about bytes on the disk.
ErrorCode code_of_errno(int error);

}  // namespace ckpt
