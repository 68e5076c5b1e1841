#include "formats/base/unix_address.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

namespace ckpt::base {

namespace {

constexpr size_t kAddressBytesMax = sizeof(sockaddr_un::sun_path) - 1;
constexpr size_t kFolderBytesMax = sizeof("/proc/self/fd/2147483647/") - 1;
constexpr size_t kNameBytesMax = kAddressBytesMax - kFolderBytesMax;  // behind a long path
constexpr size_t kPathBytesMax = PATH_MAX - 1 - 16;                   // PATH.lock lies beside it

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Error folder_error(const std::string& path, int error) {
  const ErrorCode code = error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound
                         : error == EACCES                   ? ErrorCode::kPermissionDenied
                                                             : ErrorCode::kIo;
  return make_error(code, "socket {}: cannot open its folder: {}", path, std::strerror(error));
}

}  // namespace

std::string unix_socket_path(std::string_view address) {
  constexpr std::string_view kPrefix = "unix:";
  if (address.starts_with(kPrefix)) address.remove_prefix(kPrefix.size());
  return std::string(address);
}

bool is_network_address(std::string_view address) {
  if (address.starts_with("unix:")) return false;
  const size_t colon = address.find(':');
  if (colon == std::string_view::npos || address.find('/') < colon) return false;
  return ::access(std::string(address).c_str(), F_OK) != 0;
}

std::string unix_path_fault(const std::string& path) {
  if (path.empty() || path.size() > kPathBytesMax) {
    return fmt::format("the path of a socket has 1 to {} bytes", kPathBytesMax);
  }
  if (path.size() <= kAddressBytesMax || name_of(path).size() <= kNameBytesMax) return {};
  return fmt::format("in a path of more than {} bytes the socket's own name has at most {}",
                     kAddressBytesMax, kNameBytesMax);
}

Result<UnixAddress> UnixAddress::of(const std::string& path) {
  if (const std::string fault = unix_path_fault(path); !fault.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "socket {}: {}", path, fault);
  }
  UnixAddress address;
  address.address_.sun_family = AF_UNIX;
  std::string reached = path;
  if (path.size() > kAddressBytesMax) {
    address.folder_.reset(::open(folder_of(path).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!address.folder_.valid()) return folder_error(path, errno);
    reached = fmt::format("/proc/self/fd/{}/{}", address.folder_.get(), name_of(path));
  }
  std::memcpy(address.address_.sun_path, reached.data(), reached.size());
  return address;
}

}  // namespace ckpt::base
