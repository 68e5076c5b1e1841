// PosixFiles: the common part of the two real engines. Opens, lists and removes files below one
// directory and maps FileIds to descriptors. Synchronous; loop thread only.
#pragma once

#include <atomic>
#include <string>
#include <unordered_map>

#include "ckptd/io/disk.h"
#include "formats/base/unique_fd.h"

namespace ckptd {

// The fallocate() mode of kAllocate or kPunch: neither changes the size of the file.
int fallocate_mode(IoOp op);

// The error for errno `error`, with its code from formats/base/errno_code.h. `what` names the
// object and the operation.
ckpt::Error errno_error(int error, std::string_view what);

// The highest directory above `directory` on the same file system: the mount point that `df` shows,
// except for bind mounts. For messages; `directory` itself if the path cannot be read.
std::string mount_point_of(const std::string& directory);

class PosixFiles : public Disk {
 public:
  explicit PosixFiles(std::string root);

  // Keeps the root open. kNotFound if the directory does not exist.
  Status open_root();

  Result<FileId> open(std::string_view path, const OpenOptions& options) override;
  Result<NewFile> create_file(std::string_view path, uint64_t preallocate_bytes) override;
  FileId adopt(NewFile file) override;
  void close(FileId file) override;
  Result<ckpt::base::UniqueFd> share(std::string_view path) override;
  Result<uint64_t> read_now(FileId file, uint64_t offset, MutableByteView memory) override;
  Result<uint64_t> size(FileId file) override;
  Status truncate(FileId file, uint64_t bytes) override;
  Result<std::vector<std::string>> list(std::string_view directory) override;
  Status make_directory(std::string_view path) override;
  Status remove(std::string_view path) override;
  Status rename(std::string_view from, std::string_view to) override;
  Status sync_directory(std::string_view path) override;
  Result<Space> space() override;

 protected:
  int descriptor(FileId file) const;
  // The error of an asynchronous operation, named by its file.
  ckpt::Error request_error(const IoRequest& request, int error) const;
  // The result of a sync that has succeeded: kIo if the file's path does not lead to it any more.
  Result<uint64_t> synced(FileId file) const;

 private:
  struct OpenFile {
    ckpt::base::UniqueFd fd;
    std::string path;
  };
  // The next two from any thread.
  Result<ckpt::base::UniqueFd> open_file(const std::string& path, const OpenOptions& options);
  Result<ckpt::base::UniqueFd> open_descriptor(const std::string& path, const OpenOptions& options);
  const OpenFile& file_at(FileId file) const;

  std::string root_;
  std::string mount_point_;  // for messages
  ckpt::base::UniqueFd root_fd_;
  FileId next_file_ = 1;
  std::unordered_map<FileId, OpenFile> files_;
  std::atomic<bool> direct_refused_ = false;  // logged once
};

}  // namespace ckptd
