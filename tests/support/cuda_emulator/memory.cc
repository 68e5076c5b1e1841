// Device memory that cudaMalloc does not make: pools of virtual memory, and another process's.
//
// A pool's addresses are mapped without access until cuMemSetAccess, so that an earlier access
// crashes. Each mapping is an allocation of its own; one memory under two addresses is not
// emulated.
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/support/cuda_emulator/emulator.h"

namespace cuda_emulator {
namespace {

constexpr size_t kGranularity = 64 << 10;

struct Pools {
  std::map<CUmemGenericAllocationHandle, Allocation> created;
  std::map<CUdeviceptr, Allocation> mapped;  // also mappings without access
  CUmemGenericAllocationHandle next = 1;
};
Pools& pools() {
  static Pools all;
  return all;
}

void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(at); }

// Contents of a handle that cudaIpcGetMemHandle makes.
struct SharedMemory {
  pid_t process;
  int fd;
  size_t bytes;
};
static_assert(sizeof(SharedMemory) <= sizeof(cudaIpcMemHandle_t));

void* map_shared(int fd, size_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : at;
}

}  // namespace

bool shares_allocations() {
  static const bool shares = std::getenv("CUDA_EMULATOR_SHARES") != nullptr;
  return shares;
}

void* allocate_shared(size_t bytes, int& fd) {
  fd = ::memfd_create("cuda-emulator", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return nullptr;
  return map_shared(fd, bytes);
}

void free_shared(void* at, const Allocation& memory) {
  (void)::munmap(at, memory.bytes);
  (void)::close(memory.fd);
}

AnyFunction driver_function(std::string_view name) {
  static const std::map<std::string_view, AnyFunction> functions = {
      {"cuMemGetAllocationGranularity",
       reinterpret_cast<AnyFunction>(&cuMemGetAllocationGranularity)},
      {"cuMemAddressReserve", reinterpret_cast<AnyFunction>(&cuMemAddressReserve)},
      {"cuMemAddressFree", reinterpret_cast<AnyFunction>(&cuMemAddressFree)},
      {"cuMemCreate", reinterpret_cast<AnyFunction>(&cuMemCreate)},
      {"cuMemRelease", reinterpret_cast<AnyFunction>(&cuMemRelease)},
      {"cuMemMap", reinterpret_cast<AnyFunction>(&cuMemMap)},
      {"cuMemUnmap", reinterpret_cast<AnyFunction>(&cuMemUnmap)},
      {"cuMemSetAccess", reinterpret_cast<AnyFunction>(&cuMemSetAccess)},
  };
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

}  // namespace cuda_emulator

using cuda_emulator::begin_call;
using cuda_emulator::device;
using cuda_emulator::kGranularity;
using cuda_emulator::Lock;
using cuda_emulator::lock;
using cuda_emulator::note;
using cuda_emulator::pointer;
using cuda_emulator::pools;
using cuda_emulator::SharedMemory;

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* at, size_t bytes, size_t, CUdeviceptr,
                             unsigned long long) {
  if (bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  void* const reserved =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = reinterpret_cast<CUdeviceptr>(reserved);
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes) {
  return ::munmap(pointer(at), bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  const Lock hold(lock());
  if (bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = pools().next++;
  pools().created[*handle] = {.bytes = bytes, .device = properties->location.id};
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const Lock hold(lock());
  return pools().created.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  const Lock hold(lock());
  const auto created = pools().created.find(handle);
  if (created == pools().created.end() || offset != 0 || bytes != created->second.bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  pools().mapped[at] = created->second;
  return CUDA_SUCCESS;
}
// Waits for the device's work, as a pool has to before it takes memory away.
CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
  const Lock hold(lock());
  cuda_emulator::run_all();
  auto first = pools().mapped.lower_bound(at);
  const auto end = pools().mapped.lower_bound(at + bytes);
  if (first == end) return CUDA_ERROR_INVALID_VALUE;
  for (; first != end; first = pools().mapped.erase(first)) {
    device().allocated.erase(pointer(first->first));
    (void)::mprotect(pointer(first->first), first->second.bytes, PROT_NONE);
    (void)::madvise(pointer(first->first), first->second.bytes, MADV_DONTNEED);
  }
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc*, size_t) {
  const Lock hold(lock());
  const auto first = pools().mapped.lower_bound(at);
  const auto end = pools().mapped.lower_bound(at + bytes);
  if (first == end) return CUDA_ERROR_INVALID_VALUE;
  for (auto one = first; one != end; ++one) {
    const auto& [begin, memory] = *one;
    if (::mprotect(pointer(begin), memory.bytes, PROT_READ | PROT_WRITE) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::memset(pointer(begin), 0xa5, memory.bytes);
    device().allocated[pointer(begin)] = memory;
  }
  return CUDA_SUCCESS;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* at) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  const auto found = device().allocated.find(at);
  if (found == device().allocated.end() || found->second.fd < 0) return note(cudaErrorInvalidValue);
  const SharedMemory shared{::getpid(), found->second.fd, found->second.bytes};
  *handle = {};
  std::memcpy(handle, &shared, sizeof shared);
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** at, cudaIpcMemHandle_t handle, unsigned) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  SharedMemory shared{};
  std::memcpy(&shared, &handle, sizeof shared);
  if (shared.process == ::getpid()) return note(cudaErrorInvalidResourceHandle);  // as CUDA
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", static_cast<int>(shared.process), shared.fd);
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  *at = fd < 0 ? nullptr : cuda_emulator::map_shared(fd, shared.bytes);
  if (*at == nullptr) return note(cudaErrorInvalidResourceHandle);
  device().allocated[*at] = {shared.bytes, cuda_emulator::current_device(), fd};
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* at) {
  const Lock hold(lock());
  const cudaError_t error = begin_call();
  cuda_emulator::run_all();
  const auto found = device().allocated.find(at);
  if (found == device().allocated.end() || found->second.fd < 0) return note(cudaErrorInvalidValue);
  cuda_emulator::free_shared(at, found->second);
  device().allocated.erase(found);
  return error;
}
