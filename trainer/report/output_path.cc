#include "trainer/report/output_path.h"

#include <unistd.h>

#include <charconv>
#include <string>
#include <system_error>

namespace moetrain::report {
namespace {

namespace fs = std::filesystem;

constexpr int kLinksMax = 40;  // as many as the kernel follows

// The descriptor that this entry of /proc/PID/fd stands for, without following the entry.
std::optional<int> entry_of_own_fds(const fs::path& path) {
  std::error_code error;
  const fs::path own = fs::canonical("/proc/self/fd", error);
  if (error) return std::nullopt;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (fs::canonical(folder, error) != own || error) return std::nullopt;
  const std::string name = path.filename();
  int fd = -1;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), fd);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == name.data() + name.size();
  return whole && fd >= 0 ? std::optional(fd) : std::nullopt;
}

// The path that the link names; nullopt: it is no link.
std::optional<fs::path> target_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_symlink(path, error)) return std::nullopt;
  const fs::path target = fs::read_symlink(path, error);
  if (error) return std::nullopt;
  return path.parent_path() / target;  // an absolute target replaces all of it
}

}  // namespace

fs::path end_of_links(fs::path path) {
  for (int links = 0; links < kLinksMax; ++links) {
    auto target = target_of(path);
    if (!target) break;
    path = *std::move(target);
  }
  return path;
}

std::optional<int> descriptor_of(const fs::path& path) {
  fs::path at = path;
  for (int links = 0; links < kLinksMax; ++links) {
    if (const auto fd = entry_of_own_fds(at)) return fd;
    auto target = target_of(at);
    if (!target) break;
    at = *std::move(target);
  }
  return std::nullopt;
}

}  // namespace moetrain::report
