#include "formats/base/result.h"

namespace ckpt {

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kAlreadyExists:
      return "already exists";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kVersionMismatch:
      return "version mismatch";
    case ErrorCode::kPermissionDenied:
      return "permission denied";
    case ErrorCode::kResourceExhausted:
      return "resource exhausted";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kDeadlineExceeded:
      return "deadline exceeded";
    case ErrorCode::kAborted:
      return "aborted";
    case ErrorCode::kIo:
      return "i/o error";
    case ErrorCode::kFailedPrecondition:
      return "failed precondition";
  }
  return "unknown error";
}

int exit_code_for(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 2;
    case ErrorCode::kNotFound:
      return 3;
    case ErrorCode::kCorrupt:
      return 4;
    default:
      return 1;
  }
}

}  // namespace ckpt
