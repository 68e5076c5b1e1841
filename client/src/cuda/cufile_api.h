// The used part of NVIDIA's cuFile (libcufile.so.0, GPUDirect Storage), declared here: the library
// is opened at run time, so building needs nothing of it. Names, values and layouts are those of
// its C interface; tests/client/cufile_header_check.cc compares them with the toolkit's cufile.h
// if there is one.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace ckpt::lib::cufile {

// Return value of cuFile's functions. `cuda` has the details if code is kCudaDriverError.
struct Error {
  int code = 0;  // 0, or above kErrorBase
  int cuda = 0;
};
inline constexpr int kErrorBase = 5000;
inline constexpr int kDriverNotInitialized = 5001;  // nvidia-fs is not loaded
inline constexpr int kPlatformNotSupported = 5007;
inline constexpr int kIoNotSupported = 5008;  // by this file's file system
inline constexpr int kDeviceNotSupported = 5009;
inline constexpr int kCudaDriverError = 5011;
inline constexpr int kDirectIoNotSet = 5020;
inline constexpr int kPermissionDenied = 5025;
inline constexpr int kDriverAlreadyOpen = 5026;
inline constexpr int kPinningFailed = 5036;

inline constexpr int kHandleTypeFd = 1;
struct Descriptor {
  int type = kHandleTypeFd;
  union {
    int fd = -1;
    void* other;
  } handle;
  const void* file_system = nullptr;
};
using Handle = void*;

using DriverOpen = Error();
using DriverClose = Error();
using HandleRegister = Error(Handle* handle, Descriptor* descriptor);
using HandleDeregister = void(Handle handle);
using BufRegister = Error(const void* base, size_t bytes, int flags);
using BufDeregister = Error(const void* base);
// Bytes read; -1 with errno, or minus a code above kErrorBase.
using Read = ssize_t(Handle handle, void* base, size_t bytes, off_t file_offset, off_t at);

}  // namespace ckpt::lib::cufile
