#include "client/src/cuda/cufile.h"

#include <dlfcn.h>
#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>

#include "client/src/cuda/capture_scope.h"
#include "formats/base/ids.h"
#include "kernels/cuda/queue.h"

namespace ckpt::lib {
namespace {

constexpr char kLibrary[] = "libcufile.so.0";

const char* meaning(int code) {
  switch (code) {
    case cufile::kDriverNotInitialized:
      return "nvidia-fs is not loaded, and compatibility mode is off";
    case cufile::kPlatformNotSupported:
      return "not supported on this platform";
    case cufile::kIoNotSupported:
      return "not supported by this file system";
    case cufile::kDeviceNotSupported:
      return "not supported by this GPU";
    case cufile::kDirectIoNotSet:
      return "the file is not open for direct I/O";
    case cufile::kPermissionDenied:
      return "permission denied";
    case cufile::kPinningFailed:
      return "GPU memory cannot be pinned";
    default:
      return "see cufile.h";
  }
}

Status status_of(const cufile::Error& error, const char* call) {
  if (error.code == 0) return ok_status();
  if (error.code == cufile::kCudaDriverError) {
    return make_error(ErrorCode::kUnavailable, "{}: CUDA error {}", call, error.cuda);
  }
  return make_error(ErrorCode::kUnavailable, "{}: error {} ({})", call, error.code,
                    meaning(error.code));
}

template <typename Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<std::shared_ptr<CuFile>> CuFile::open(const Options& options) {
  std::shared_ptr<CuFile> library(new CuFile);
  CKPT_TRY(library->load(options.library));
  CKPT_TRY(library->open_driver(options));
  return library;
}

Error CuFile::no_thread(const std::system_error& error) {
  return make_error(ErrorCode::kResourceExhausted, "starting a thread: {}", error.code().message());
}

Status CuFile::load(const std::string& library) {
  const std::string name = library.empty() ? kLibrary : library;
  void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return make_error(ErrorCode::kUnavailable, "{}", ::dlerror());
  const bool whole = find(handle, "cuFileDriverOpen", driver_open_) &&
                     find(handle, "cuFileHandleRegister", handle_register_) &&
                     find(handle, "cuFileHandleDeregister", handle_deregister_) &&
                     find(handle, "cuFileBufRegister", buf_register_) &&
                     find(handle, "cuFileBufDeregister", buf_deregister_) &&
                     find(handle, "cuFileRead", read_);
  if (!whole) return make_error(ErrorCode::kUnavailable, "{}: {}", name, ::dlerror());
  // The first version of the call closed the driver for the whole process.
  find(handle, "cuFileDriverClose_v2", driver_close_);
  return ok_status();
}

Status CuFile::open_driver(const Options& options) {
  auto opening = std::make_shared<std::promise<cufile::Error>>();
  std::future<cufile::Error> opened = opening->get_future();
  try {
    std::thread([opening, open = driver_open_, device = options.device] {
      kernels::choose_cuda_device(device);
      const CaptureScope beside_captures;
      opening->set_value(open());
    }).detach();
  } catch (const std::system_error& error) {
    return no_thread(error);
  }
  if (opened.wait_for(std::chrono::milliseconds(options.timeout_ms)) != std::future_status::ready) {
    return make_error(ErrorCode::kUnavailable, "cuFileDriverOpen has not returned within {} ms",
                      options.timeout_ms);
  }
  const cufile::Error error = opened.get();
  if (error.code == cufile::kDriverAlreadyOpen) return ok_status();
  CKPT_TRY(status_of(error, "cuFileDriverOpen"));
  driver_is_ours_ = true;
  return ok_status();
}

CuFile::~CuFile() {
  if (driver_is_ours_ && driver_close_ != nullptr) (void)driver_close_();
}

Result<std::shared_ptr<CuFile::File>> CuFile::add_file(int fd) {
  base::UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) {
    return make_error(ErrorCode::kUnavailable, "a descriptor for cuFile: {}", std::strerror(errno));
  }
  cufile::Descriptor descriptor;
  descriptor.handle.fd = own.get();
  std::shared_ptr<File> file(new File(shared_from_this(), std::move(own)));
  CKPT_TRY(status_of(handle_register_(&file->handle_, &descriptor), "cuFileHandleRegister"));
  return file;
}

CuFile::File::~File() {
  if (handle_ != nullptr) library_->handle_deregister_(handle_);
}

Result<CuFile::Buffer> CuFile::add_buffer(std::byte* base, uint64_t bytes) {
  CKPT_TRY(status_of(buf_register_(base, bytes, 0), "cuFileBufRegister"));
  Buffer buffer;
  buffer.library_ = shared_from_this();
  buffer.base_ = base;
  return buffer;
}

CuFile::Buffer::~Buffer() {
  if (base_ != nullptr) (void)library_->buf_deregister_(base_);
}

Result<uint64_t> CuFile::read(const File& file, std::byte* base, uint64_t bytes,
                              uint64_t file_offset, uint64_t at) {
  uint64_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        file.library_->read_(file.handle_, base, bytes - done,
                             static_cast<off_t>(file_offset + done), static_cast<off_t>(at + done));
    if (got < -1) return status_of({static_cast<int>(-got), 0}, "cuFileRead").error();
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return make_error(ErrorCode::kIo, "cuFileRead of {} bytes at offset {}: {}", bytes,
                        file_offset, std::strerror(errno));
    }
    done += static_cast<uint64_t>(got);
    if (got == 0 || done % kBlockBytes != 0) break;  // the end of the file
  }
  return done;
}

}  // namespace ckpt::lib
