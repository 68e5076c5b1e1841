#include "formats/base/errno_code.h"

#include <cerrno>

namespace ckpt {

ErrorCode code_of_errno(int error) {
  switch (error) {
    // The device reports lost bytes, or the file system's own checksum does.
    case EIO:
    case EREMOTEIO:
    case EILSEQ:
    case EBADMSG:
    case EUCLEAN:
    case ENODATA:
      return ErrorCode::kIo;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ErrorCode::kResourceExhausted;
    case ENOENT:
      return ErrorCode::kNotFound;
    case EEXIST:
      return ErrorCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::kPermissionDenied;
    default:
      return ErrorCode::kUnavailable;
  }
}

}  // namespace ckpt
