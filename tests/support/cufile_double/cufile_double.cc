// A libcufile for the emulated device, whose memory is the host's: real reads from the real
// descriptors, calls that fail on demand. It takes only what cuFile takes without copying through
// buffers of its own: registered files that are open for direct I/O, registered memory, whole
// blocks.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "client/src/cuda/cufile_api.h"
#include "tests/support/cufile_double/control.h"

#define CUFILE_DOUBLE_API extern "C" __attribute__((visibility("default")))

namespace {

using ckpt::lib::cufile::Descriptor;
using ckpt::lib::cufile::Error;
using ckpt::lib::cufile::Handle;
using cufile_double::Control;
using cufile_double::ReadFault;

constexpr int kInvalidValue = 5022;
constexpr size_t kBlock = 4096;

struct Tables {
  std::mutex mutex;
  std::set<Handle> handles;
  std::map<const char*, size_t> buffers;  // base -> bytes
};
Tables& tables() {
  static Tables all;
  return all;
}

Error wrong() {
  ++cufile_double_control()->wrong_calls;
  return {kInvalidValue, 0};
}
void wait_while(const std::atomic<bool>& held) {
  while (held) (void)::poll(nullptr, 0, 1);
}

bool may_read(Handle handle, const char* base, size_t bytes, off_t file_offset, off_t at) {
  const std::lock_guard lock(tables().mutex);
  const auto buffer = tables().buffers.find(base);
  const bool aligned = bytes % kBlock == 0 && file_offset % static_cast<off_t>(kBlock) == 0 &&
                       at % static_cast<off_t>(kBlock) == 0;
  return tables().handles.contains(handle) && buffer != tables().buffers.end() && aligned &&
         static_cast<size_t>(at) + bytes <= buffer->second;
}

// Through memory that O_DIRECT can read into: the emulated device's is not as aligned as a GPU's.
ssize_t read_direct(int fd, char* to, size_t bytes, off_t offset) {
  const std::unique_ptr<void, decltype(&std::free)> blocks(std::aligned_alloc(kBlock, bytes),
                                                           &std::free);
  const ssize_t got = ::pread(fd, blocks.get(), bytes, offset);
  if (got > 0) std::memcpy(to, blocks.get(), static_cast<size_t>(got));
  return got;
}

}  // namespace

CUFILE_DOUBLE_API Control* cufile_double_control() {
  static Control control;
  return &control;
}

// NOLINTBEGIN(readability-identifier-naming): cuFile's names
CUFILE_DOUBLE_API Error cuFileDriverOpen() {
  Control& control = *cufile_double_control();
  wait_while(control.driver_hangs);
  if (const int code = control.driver_error) return {code, 0};
  ++control.drivers;
  return {};
}

CUFILE_DOUBLE_API Error cuFileDriverClose_v2() {
  --cufile_double_control()->drivers;
  return {};
}

CUFILE_DOUBLE_API Error cuFileHandleRegister(Handle* handle, Descriptor* descriptor) {
  Control& control = *cufile_double_control();
  if (const int code = control.handle_error) return {code, 0};
  if (descriptor->type != ckpt::lib::cufile::kHandleTypeFd) return wrong();
  const int flags = ::fcntl(descriptor->handle.fd, F_GETFL);
  if (flags < 0) return wrong();
  if ((flags & O_DIRECT) == 0) return {ckpt::lib::cufile::kDirectIoNotSet, 0};
  auto* file = new int(descriptor->handle.fd);
  const std::lock_guard lock(tables().mutex);
  tables().handles.insert(file);
  *handle = file;
  ++control.files;
  return {};
}

CUFILE_DOUBLE_API void cuFileHandleDeregister(Handle handle) {
  const std::lock_guard lock(tables().mutex);
  if (tables().handles.erase(handle) == 0) return (void)wrong();
  delete static_cast<int*>(handle);
  --cufile_double_control()->files;
}

CUFILE_DOUBLE_API Error cuFileBufRegister(const void* base, size_t bytes, int) {
  Control& control = *cufile_double_control();
  if (const int code = control.buffer_error) return {code, 0};
  const std::lock_guard lock(tables().mutex);
  if (!tables().buffers.emplace(static_cast<const char*>(base), bytes).second) return wrong();
  ++control.buffers;
  return {};
}

CUFILE_DOUBLE_API Error cuFileBufDeregister(const void* base) {
  const std::lock_guard lock(tables().mutex);
  if (tables().buffers.erase(static_cast<const char*>(base)) == 0) return wrong();
  --cufile_double_control()->buffers;
  return {};
}

CUFILE_DOUBLE_API ssize_t cuFileRead(Handle handle, void* base, size_t bytes, off_t file_offset,
                                     off_t at) {
  Control& control = *cufile_double_control();
  const int number = control.reads++;
  if (auto* on_read = control.on_read.load()) on_read(control.context, number);
  wait_while(control.reads_hang);
  if (!may_read(handle, static_cast<const char*>(base), bytes, file_offset, at)) {
    return -wrong().code;
  }
  char* to = static_cast<char*>(base) + at;
  const bool faulty =
      number >= control.fault_from && number - control.fault_from < control.fault_count;
  const int fd = *static_cast<int*>(handle);
  switch (faulty ? control.read_fault.load() : ReadFault::kNone) {
    case ReadFault::kEndOfFile:
      return 0;
    case ReadFault::kDiskError:
      errno = EIO;
      return -1;
    case ReadFault::kCuFileError:
      return -5044;
    case ReadFault::kPartial:
      return read_direct(fd, to, std::max(kBlock, bytes / 2 / kBlock * kBlock), file_offset);
    case ReadFault::kWrongByte: {
      const ssize_t got = read_direct(fd, to, bytes, file_offset);
      if (got > 0) to[got / 2] = static_cast<char>(~to[got / 2]);
      return got;
    }
    case ReadFault::kNone:
      break;
  }
  return read_direct(fd, to, bytes, file_offset);
}
// NOLINTEND(readability-identifier-naming)
