// Devices, errors and memory.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "tests/support/cuda_emulator/control.h"
#include "tests/support/cuda_emulator/emulator.h"

namespace cuda_emulator {

std::recursive_mutex& lock() {
  static std::recursive_mutex mutex;
  return mutex;
}

Device& device() {
  static Device the_device;
  return the_device;
}

int devices_of_the_environment() {
  constexpr int64_t kMost = 64;
  const char* const count = std::getenv("CUDA_EMULATOR_DEVICES");
  if (count == nullptr) return 1;
  return static_cast<int>(std::clamp<int64_t>(std::strtoll(count, nullptr, 10), 0, kMost));
}

namespace {

thread_local int chosen_device = 0;

// The driver's cuDevicePrimaryCtxGetState.
int primary_context_state(int which, unsigned* flags, int* active) {
  const Lock hold(lock());
  *flags = 0;
  *active = device().contexts.contains(which) ? 1 : 0;
  return 0;
}

}  // namespace

int current_device() { return chosen_device; }

void set_devices(int count) {
  const Lock hold(lock());
  device().count = count;
}
std::set<int> contexts() {
  const Lock hold(lock());
  return device().contexts;
}
void forget_contexts() {
  const Lock hold(lock());
  device().contexts.clear();
}

cudaError_t query_kernel_attributes(cudaFuncAttributes* attributes) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  *attributes = {};
  return cudaSuccess;
}

cudaError_t check_registration(const void* at, size_t bytes) {
  const auto* const begin = static_cast<const char*>(at);
  for (const auto& [registered, length] : device().registered) {
    const auto* const first = static_cast<const char*>(registered);
    const bool touches = begin < first + length && first < begin + bytes;
    const bool inside = first <= begin && begin + bytes <= first + length;
    if (touches && !inside) return note(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t check_allocation(const void* at, size_t bytes) {
  const auto cut = device().cuts.upper_bound(at);
  const bool crosses = cut != device().cuts.end() && *cut < static_cast<const char*>(at) + bytes;
  return crosses ? note(cudaErrorInvalidValue) : cudaSuccess;
}

void cut_allocation(const void* at) {
  const Lock hold(lock());
  device().cuts.insert(at);
}

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess) device().last_error = error;
  return error;
}

}  // namespace cuda_emulator

using cuda_emulator::begin_call;
using cuda_emulator::check_allocation;
using cuda_emulator::check_can_take_work;
using cuda_emulator::check_no_capture;
using cuda_emulator::check_registration;
using cuda_emulator::Context;
using cuda_emulator::current_device;
using cuda_emulator::device;
using cuda_emulator::Lock;
using cuda_emulator::lock;
using cuda_emulator::note;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "part or all of the requested memory range is already mapped";
    case cudaErrorHostMemoryNotRegistered:
      return "pointer does not correspond to a registered memory region";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorStreamCaptureImplicit:
      return "operation would make the legacy stream depend on a capturing blocking stream";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
  }
  return "unknown error";
}
cudaError_t cudaGetLastError() {
  const Lock hold(lock());
  return std::exchange(device().last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  const Lock hold(lock());
  return device().last_error;
}
cudaError_t cudaGetDeviceCount(int* count) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call(Context::kNotNeeded)) return error;
  *count = device().count;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int which) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call(Context::kNotNeeded)) return error;
  if (which < 0 || which >= device().count) return note(cudaErrorInvalidDevice);
  cuda_emulator::chosen_device = which;
  device().contexts.insert(which);  // as since CUDA 12
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* which) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call(Context::kNotNeeded)) return error;
  *which = current_device();
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int which) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call(Context::kNotNeeded)) return error;
  if (which < 0 || which >= device().count) return note(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "emulated");
  properties->totalGlobalMem = size_t{1} << 30;
  properties->multiProcessorCount = 2;
  properties->major = 8;
  properties->l2CacheSize = 1 << 20;
  properties->sharedMemPerBlock = 48 << 10;
  return cudaSuccess;
}
// Equal in every process: devices belong to the machine.
cudaError_t cudaDeviceGetPCIBusId(char* bus_id, int bytes, int which) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call(Context::kNotNeeded)) return error;
  if (which < 0 || which >= device().count) return note(cudaErrorInvalidDevice);
  const int length =
      std::snprintf(bus_id, static_cast<size_t>(bytes), "0000:%02x:00.0", unsigned(which) + 1);
  return length < bytes ? cudaSuccess : note(cudaErrorInvalidValue);
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;  // none
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call(Context::kNotNeeded)) return error;
  const bool is_state = std::strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0;
  *function = is_state ? reinterpret_cast<void*>(&cuda_emulator::primary_context_state)
                       : reinterpret_cast<void*>(cuda_emulator::driver_function(symbol));
  if (*function == nullptr) return note(cudaErrorInvalidValue);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Lock hold(lock());
  if (const cudaError_t error = check_no_capture()) return error;
  if (const cudaError_t error = begin_call()) return error;
  *free = *total = size_t{1} << 30;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const Lock hold(lock());
  if (const cudaError_t error = check_no_capture()) return error;
  if (const cudaError_t error = begin_call()) return error;
  cuda_emulator::run_all();
  return cudaSuccess;
}

// Memory is filled with odd bytes, so that no code relies on zeros; large memory at its beginning.
cudaError_t cudaMalloc(void** at, size_t bytes) {
  constexpr size_t kMoreThanAnyDevice = size_t{1} << 39;
  const Lock hold(lock());
  if (const cudaError_t error = check_no_capture()) return error;
  ++device().slow_calls;
  if (const cudaError_t error = begin_call()) return error;
  if (bytes >= kMoreThanAnyDevice) return note(cudaErrorMemoryAllocation);
  int fd = -1;
  *at = cuda_emulator::shares_allocations()
            ? cuda_emulator::allocate_shared(bytes, fd)
            : ::operator new (bytes, std::align_val_t{256}, std::nothrow);
  if (*at == nullptr) return note(cudaErrorMemoryAllocation);
  std::memset(*at, 0xa5, std::min(bytes, size_t{1} << 20));
  device().allocated[*at] = {bytes, current_device(), fd};
  return cudaSuccess;
}
// Waits for all work, as CUDA's does.
cudaError_t cudaFree(void* at) {
  const Lock hold(lock());
  if (const cudaError_t error = check_no_capture()) return error;
  ++device().slow_calls;
  const cudaError_t error = begin_call();
  cuda_emulator::run_all();
  if (at == nullptr) return error;
  const auto found = device().allocated.find(at);
  if (found == device().allocated.end()) return note(cudaErrorInvalidValue);
  const void* const end = static_cast<const char*>(at) + found->second.bytes;
  device().cuts.erase(device().cuts.lower_bound(at), device().cuts.lower_bound(end));
  if (found->second.fd >= 0) {
    cuda_emulator::free_shared(at, found->second);
  } else {
    ::operator delete (at, std::align_val_t{256});
  }
  device().allocated.erase(found);
  return error;
}
cudaError_t cudaMallocHost(void** at, size_t bytes) { return cudaMalloc(at, bytes); }
cudaError_t cudaFreeHost(void* at) { return cudaFree(at); }
cudaError_t cudaHostRegister(void* at, size_t bytes, unsigned) {
  const Lock hold(lock());
  if (const cudaError_t error = check_no_capture()) return error;
  ++device().slow_calls;
  if (const cudaError_t error = begin_call()) return error;
  if (at == nullptr || bytes == 0) return note(cudaErrorInvalidValue);
  if (!device().registered.emplace(at, bytes).second)
    return note(cudaErrorHostMemoryAlreadyRegistered);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* at) {
  const Lock hold(lock());
  if (const cudaError_t error = check_no_capture()) return error;
  ++device().slow_calls;
  const cudaError_t error = begin_call();
  cuda_emulator::run_all();
  return device().registered.erase(at) == 1 ? error : note(cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* at) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  const auto is_inside = [at](const void* begin, size_t bytes) {
    return static_cast<size_t>(static_cast<const char*>(at) - static_cast<const char*>(begin)) <
           bytes;
  };
  *attributes = {.type = cudaMemoryTypeUnregistered, .device = -1};
  const auto& allocated = device().allocated;
  const auto behind = allocated.upper_bound(at);
  if (behind != allocated.begin()) {
    const auto& [begin, memory] = *std::prev(behind);
    if (is_inside(begin, memory.bytes)) *attributes = {cudaMemoryTypeDevice, memory.device};
  }
  const auto& registered = device().registered;
  const auto after = registered.upper_bound(at);
  if (after != registered.begin()) {
    const auto& [begin, bytes] = *std::prev(after);
    if (is_inside(begin, bytes)) *attributes = {cudaMemoryTypeHost, current_device()};
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const Lock hold(lock());
  if (const cudaError_t error = check_no_capture()) return error;
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  if (bytes == 0) return cudaSuccess;
  if (const cudaError_t error = check_can_take_work(stream)) return error;
  for (const void* const end : {static_cast<const void*>(to), from}) {
    if (const cudaError_t error = check_registration(end, bytes)) return error;
    if (const cudaError_t error = check_allocation(end, bytes)) return error;
  }
  ++device().copies;
  cuda_emulator::enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* at, int value, size_t bytes) {
  const Lock hold(lock());
  if (const cudaError_t error = check_no_capture()) return error;
  return cudaMemsetAsync(at, value, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t stream) {
  const Lock hold(lock());
  if (const cudaError_t error = begin_call()) return error;
  if (bytes == 0) return cudaSuccess;
  if (const cudaError_t error = check_can_take_work(stream)) return error;
  cuda_emulator::enqueue(stream, [=] { std::memset(at, value, bytes); });
  return cudaSuccess;
}
