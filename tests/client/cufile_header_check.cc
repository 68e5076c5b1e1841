// Our declarations of cuFile against NVIDIA's own: compiled where the CUDA toolkit has cufile.h. It
// is enough that this compiles.
#include <cufile.h>

#include <cstddef>
#include <type_traits>

#include "client/src/cuda/cufile_api.h"

namespace {

namespace ours = ckpt::lib::cufile;

static_assert(sizeof(ours::Error) == sizeof(CUfileError_t));
static_assert(offsetof(ours::Error, code) == offsetof(CUfileError_t, err));
static_assert(offsetof(ours::Error, cuda) == offsetof(CUfileError_t, cu_err));
static_assert(sizeof(ours::Descriptor) == sizeof(CUfileDescr_t));
static_assert(offsetof(ours::Descriptor, type) == offsetof(CUfileDescr_t, type));
static_assert(offsetof(ours::Descriptor, handle) == offsetof(CUfileDescr_t, handle));
static_assert(offsetof(ours::Descriptor, file_system) == offsetof(CUfileDescr_t, fs_ops));
static_assert(std::is_same_v<ours::Handle, CUfileHandle_t>);

static_assert(ours::kErrorBase == CUFILEOP_BASE_ERR);
static_assert(ours::kHandleTypeFd == CU_FILE_HANDLE_TYPE_OPAQUE_FD);
static_assert(ours::kDriverNotInitialized == CU_FILE_DRIVER_NOT_INITIALIZED);
static_assert(ours::kPlatformNotSupported == CU_FILE_PLATFORM_NOT_SUPPORTED);
static_assert(ours::kIoNotSupported == CU_FILE_IO_NOT_SUPPORTED);
static_assert(ours::kDeviceNotSupported == CU_FILE_DEVICE_NOT_SUPPORTED);
static_assert(ours::kCudaDriverError == CU_FILE_CUDA_DRIVER_ERROR);
static_assert(ours::kDirectIoNotSet == CU_FILE_DIO_NOT_SET);
static_assert(ours::kPermissionDenied == CU_FILE_PERMISSION_DENIED);
static_assert(ours::kDriverAlreadyOpen == CU_FILE_DRIVER_ALREADY_OPEN);
static_assert(ours::kPinningFailed == CU_FILE_GPU_MEMORY_PINNING_FAILED);

// The signatures are equal, except for the names of the structs.
static_assert(std::is_same_v<decltype(cuFileDriverOpen), CUfileError_t()>);
static_assert(std::is_same_v<decltype(cuFileDriverClose), CUfileError_t()>);  // of version 2
static_assert(
    std::is_same_v<decltype(cuFileHandleRegister), CUfileError_t(CUfileHandle_t*, CUfileDescr_t*)>);
static_assert(std::is_same_v<decltype(cuFileHandleDeregister), ours::HandleDeregister>);
static_assert(std::is_same_v<decltype(cuFileBufRegister), CUfileError_t(const void*, size_t, int)>);
static_assert(std::is_same_v<decltype(cuFileBufDeregister), CUfileError_t(const void*)>);
static_assert(std::is_same_v<decltype(cuFileRead), ours::Read>);

}  // namespace
