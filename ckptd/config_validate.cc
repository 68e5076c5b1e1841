// Validates values that each have the right type: see validate() in config.h.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>

#include "ckptd/config.h"
#include "formats/base/ids.h"
#include "formats/base/parse.h"
#include "formats/base/printable.h"
#include "formats/base/unix_address.h"

namespace ckptd {

namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;
using ckpt::base::format_size;

uint64_t memory_bytes() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::string with_value(std::string_view name, const std::string& value) {
  return value.empty() ? std::string(name)
                       : fmt::format("{} {}", name, ckpt::base::printable(value));
}

// "ckptd.toml:3: arena 2.0 GiB: WHAT", "--arena 2.0 GiB: WHAT", "arena 2.0 GiB (the default):
// WHAT".
ckpt::Error wrong(const Config& config, std::string_view key, const std::string& value,
                  std::string_view what) {
  const auto origin = config.origins.find(key);
  std::string subject = with_value(key, value);
  if (origin == config.origins.end()) {
    subject += " (the default)";
  } else if (origin->second.names_key) {
    subject = with_value(origin->second.place, value);
  } else {
    subject = fmt::format("{}: {}", origin->second.place, subject);
  }
  return make_error(ErrorCode::kInvalidArgument, "{}: {}", subject, what);
}

// A value that conflicts with another, for use within a sentence: "arena 2.0 GiB (ckptd.toml:3)",
// "--arena 2.0 GiB", "arena 2.0 GiB (the default)".
std::string with_origin(const Config& config, std::string_view key, const std::string& value) {
  const auto origin = config.origins.find(key);
  if (origin == config.origins.end()) return with_value(key, value) + " (the default)";
  if (origin->second.names_key) return with_value(origin->second.place, value);
  return fmt::format("{} ({})", with_value(key, value), origin->second.place);
}

Status one_of(const Config& config, std::string_view key, const std::string& value,
              std::initializer_list<std::string_view> choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return {};
  std::string names;
  for (const std::string_view choice : choices) {
    const bool last = choice == *(choices.end() - 1);
    names += fmt::format("{}{}", names.empty() ? "" : (last ? " or " : ", "), choice);
  }
  return wrong(config, key, value, "should be " + names);
}

Status check_choices(const Config& config) {
  CKPT_TRY(one_of(config, "io", config.io, {"uring", "pwritev"}));
  CKPT_TRY(one_of(config, "alarms", config.alarms, {"off", "warn", "refuse"}));
  CKPT_TRY(one_of(config, "log_level", config.log_level, {"debug", "info", "warn", "error"}));
  return one_of(config, "log_format", config.log_format, {"text", "json"});
}

Status fits_memory(const Config& config, std::string_view key, uint64_t bytes) {
  if (bytes <= memory_bytes()) return {};
  return wrong(
      config, key, format_size(bytes),
      fmt::format("more than the memory of this machine ({})", format_size(memory_bytes())));
}

// The default arena of a session. If set, it must not exceed `arena` or the maxima of a session and
// a user. If not set, it is reduced to them.
Status settle_session_arena(Config& config) {
  struct Bound {
    std::string_view key;
    uint64_t bytes;
  };
  std::string_view decided_by = "session_arena";
  const bool is_set = config.origins.contains("session_arena");
  for (const Bound& most :
       {Bound{"arena", config.arena_bytes},
        Bound{"session_arena_max", config.session_arena_max_bytes},
        Bound{"user_arena_max", config.user_arena_max_bytes.value_or(UINT64_MAX)}}) {
    if (config.session_arena_bytes <= most.bytes) continue;
    if (is_set) {
      return wrong(
          config, "session_arena", format_size(config.session_arena_bytes),
          fmt::format("more than {}", with_origin(config, most.key, format_size(most.bytes))));
    }
    config.session_arena_bytes = most.bytes;
    decided_by = most.key;
  }
  const uint64_t least = 4 * ckpt::kSlabBytesMin;
  if (config.session_arena_bytes >= least) return {};
  return wrong(config, decided_by, format_size(config.session_arena_bytes),
               fmt::format("a session needs at least {}", format_size(least)));
}

// If several users may connect, none of them gets all of the memory by default.
void settle_user_arena(Config& config) {
  if (config.user_arena_max_bytes) return;
  std::set<uid_t> others(config.allow_uids.begin(), config.allow_uids.end());
  others.erase(0);
  others.erase(::geteuid());
  config.user_arena_max_bytes = others.size() > 1 ? config.arena_bytes / 4 * 3 : config.arena_bytes;
}

// Rejects malformed numeric addresses, which getaddrinfo() would refuse. Names are looked up later.
bool may_be_host(const std::string& host) {
  if (host.empty() || host.find('\0') != std::string::npos) return false;
  if (host.find(':') != std::string::npos) {
    in6_addr ignored{};
    return ::inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &ignored) == 1;
  }
  if (host.find_first_not_of("0123456789.") != std::string::npos) return true;
  in_addr ignored{};
  return ::inet_aton(host.c_str(), &ignored) != 0;
}

// Empty, or the error of the address.
std::string_view read_http_address(std::string_view text, HttpAddress& address) {
  constexpr std::string_view kShape = "should be HOST:PORT, such as 127.0.0.1:9464";
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return kShape;
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  address.host = host;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  const bool good = !host.empty() && error == std::errc{} && end == port.data() + port.size() &&
                    address.port >= 0 && address.port <= 65535;
  if (!good) return kShape;
  return may_be_host(address.host) ? "" : "HOST should be an address or a host name";
}

Status check_addresses(const Config& config) {
  const std::string path_fault = ckpt::base::unix_path_fault(config.listen);
  if (!path_fault.empty()) return wrong(config, "listen", config.listen, path_fault);
  if (config.http.empty()) return {};
  HttpAddress ignored;
  const std::string_view fault = read_http_address(config.http, ignored);
  return fault.empty() ? Status() : wrong(config, "http", config.http, fault);
}

Status check_times(const Config& config) {
  if (config.snapshot_deadline < std::chrono::seconds(1)) {
    return wrong(config, "snapshot_deadline",
                 fmt::format("{} ms", config.snapshot_deadline.count()), "should be at least 1s");
  }
  return {};
}

// The file system of the store, or of its future directory.
struct FileSystem {
  std::string directory;
  uint64_t bytes = 0;  // 0: unknown
};
FileSystem file_system_of(const std::string& data) {
  std::error_code error;
  std::filesystem::path directory = std::filesystem::absolute(data, error);
  struct statvfs info {};
  while (!error && ::statvfs(directory.c_str(), &info) != 0) {
    if (directory == directory.parent_path()) return {};
    directory = directory.parent_path();
  }
  if (error) return {};
  return {.directory = directory.string(), .bytes = uint64_t{info.f_blocks} * info.f_frsize};
}

}  // namespace

Result<HttpAddress> parse_http_address(std::string_view text) {
  HttpAddress address;
  const std::string_view fault = read_http_address(text, address);
  if (fault.empty()) return address;
  return make_error(ErrorCode::kInvalidArgument, "http {}: {}", text, fault);
}

Status validate(Config& config) {
  if (config.data.empty()) {
    if (config.origins.contains("data")) {
      return wrong(config, "data", "", "should name a directory");
    }
    return make_error(ErrorCode::kInvalidArgument, "no data directory: pass --data DIR");
  }
  if (config.listen.empty()) config.listen = config.data + "/ckptd.sock";
  if (config.listen.starts_with("tcp:")) {
    return wrong(config, "listen", config.listen, "ckptd listens on a unix socket only: unix:PATH");
  }
  config.listen = ckpt::base::unix_socket_path(config.listen);
  CKPT_TRY(check_choices(config));
  CKPT_TRY(check_addresses(config));
  CKPT_TRY(fits_memory(config, "arena", config.arena_bytes));
  CKPT_TRY(settle_session_arena(config));
  settle_user_arena(config);
  if (!config.warm_pool_bytes) config.warm_pool_bytes = config.session_arena_bytes;
  CKPT_TRY(fits_memory(config, "warm_pool", *config.warm_pool_bytes));
  if (config.segment_bytes < (16ull << 20) || config.segment_bytes % ckpt::kBlockBytes != 0) {
    return wrong(config, "segment", format_size(config.segment_bytes),
                 "should be at least 16MiB and a multiple of 4KiB");
  }
  CKPT_TRY(check_times(config));
  if (config.workers == 0) config.workers = std::clamp(std::thread::hardware_concurrency(), 1u, 4u);
  return {};
}

// The default is never an error: a store on a small disk can still be read.
Status check_disk_reserve(const Config& config) {
  if (!config.origins.contains("disk_reserve")) return {};
  const FileSystem disk = file_system_of(config.data);
  if (disk.bytes == 0 || config.disk_reserve_bytes < disk.bytes) return {};
  return wrong(config, "disk_reserve", format_size(config.disk_reserve_bytes),
               fmt::format("no snapshot could be saved: the file system of {} has {} in all",
                           ckpt::base::printable(disk.directory), format_size(disk.bytes)));
}

}  // namespace ckptd
