// CuFile: the library of GPUDirect Storage, opened at run time; files and device memory registered
// with it. Errors (kUnavailable) name the call that failed and the reason.
//
// The library is never unloaded: it has threads of its own. Its calls may also not return: its
// driver, opened without the CUDA driver, spins forever (seen with 1.20). So the driver is opened
// in a thread that can be abandoned.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "client/src/cuda/cufile_api.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace ckpt::lib {

class CuFile : public std::enable_shared_from_this<CuFile> {
 public:
  struct Options {
    std::string library;  // a path; empty: libcufile.so.0 wherever the loader finds it
    int device = 0;
    uint32_t timeout_ms = 0;  // for the driver
  };
  static Result<std::shared_ptr<CuFile>> open(const Options& options);
  ~CuFile();  // after all files and buffers
  CuFile(const CuFile&) = delete;
  CuFile& operator=(const CuFile&) = delete;

  // An open file, with its own descriptor. Any thread may read through it.
  class File {
   public:
    ~File();
    File(const File&) = delete;
    File& operator=(const File&) = delete;

   private:
    friend class CuFile;
    File(std::shared_ptr<CuFile> library, base::UniqueFd fd)
        : library_(std::move(library)), fd_(std::move(fd)) {}
    const std::shared_ptr<CuFile> library_;
    const base::UniqueFd fd_;
    cufile::Handle handle_ = nullptr;
  };
  // `fd` was opened with O_DIRECT; the caller keeps ownership.
  Result<std::shared_ptr<File>> add_file(int fd);

  // Device memory for reads; it must outlive this object.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept
        : library_(std::move(other.library_)), base_(std::exchange(other.base_, nullptr)) {}
    Buffer& operator=(Buffer&& other) noexcept {
      std::swap(library_, other.library_);
      std::swap(base_, other.base_);
      return *this;
    }
    ~Buffer();
    std::byte* base() const { return base_; }

   private:
    friend class CuFile;
    std::shared_ptr<CuFile> library_;
    std::byte* base_ = nullptr;
  };
  Result<Buffer> add_buffer(std::byte* base, uint64_t bytes);

  // Reads [file_offset, file_offset + bytes) to base + at, and waits. All three are multiples of a
  // block. Fewer bytes: the file ends there. kIo: the disk's error at this place of the file; any
  // other error is the library's.
  static Result<uint64_t> read(const File& file, std::byte* base, uint64_t bytes,
                               uint64_t file_offset, uint64_t at);

  // The system could not create a thread to call the library from.
  static Error no_thread(const std::system_error& error);

 private:
  CuFile() = default;
  Status load(const std::string& library);
  Status open_driver(const Options& options);

  cufile::DriverOpen* driver_open_ = nullptr;
  cufile::DriverClose* driver_close_ = nullptr;  // null: an old library that does not count users
  cufile::HandleRegister* handle_register_ = nullptr;
  cufile::HandleDeregister* handle_deregister_ = nullptr;
  cufile::BufRegister* buf_register_ = nullptr;
  cufile::BufDeregister* buf_deregister_ = nullptr;
  cufile::Read* read_ = nullptr;
  bool driver_is_ours_ = false;
};

}  // namespace ckpt::lib
