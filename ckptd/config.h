// The daemon's configuration: a TOML file, overridden by command-line flags.
// docs/reference/configuration.md lists the keys. An unknown key is an error that names the key and
// its line: a typo never silently means the default. Each value remembers its origin, so that an
// error about one value, or about two of them together, names the line or the flag to change.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckptd/codec/codec_choice.h"
#include "ckptd/io/io_shape.h"
#include "ckptd/limits.h"
#include "formats/base/result.h"

namespace ckptd {

// Where a value was set.
struct Origin {
  std::string place;       // "/etc/ckptd/ckptd.toml:3", "--arena", "CKPTD_IO"
  bool names_key = false;  // true for a flag; a line of a file is printed with the key
};

struct Config {
  std::string data;    // the store's directory; created if missing
  std::string listen;  // path of the unix socket; empty: DATA/ckptd.sock
  std::string http;    // HOST:PORT; empty: no HTTP
  std::string io = "uring";
  std::optional<IoShape> io_shape;                // not set: measured
  uint64_t arena_bytes = 2ull << 30;              // all sessions together
  uint64_t session_arena_bytes = 512ull << 20;    // of a session that requests no size
  uint64_t session_arena_max_bytes = UINT64_MAX;  // larger requests are refused
  // Limit for one user's sessions together, except root's and the daemon's own. Not set: all of
  // `arena` if one other user may connect, three quarters of it if several may.
  std::optional<uint64_t> user_arena_max_bytes;
  std::optional<uint64_t> warm_pool_bytes;  // beside `arena`; not set: session_arena
  uint64_t segment_bytes = limits::kSegmentBytesDefault;
  uint64_t disk_reserve_bytes = 256ull << 20;  // never used by snapshots
  std::chrono::milliseconds snapshot_deadline = limits::kSnapshotDeadlineDefault;
  uint64_t scrub_bytes_per_second = limits::kScrubRateDefault;  // 0: no background reads
  std::chrono::milliseconds scrub_interval = limits::kScrubIntervalDefault;  // 0: no passes
  std::vector<uid_t> allow_uids;  // besides root and the daemon's own user
  unsigned workers = 0;           // threads for checksums; 0: number of cores, at most 4
  // For sessions that do not choose: "off", "warn" or "refuse" for a snapshot with alarms.
  std::string alarms = "warn";
  CodecChoice codec = CodecChoice::kNone;
  std::string log_level = "info";
  std::string log_format = "text";                     // or "json", one object per line
  std::map<std::string, Origin, std::less<>> origins;  // by key; missing keys have their default
};

struct HttpAddress {
  std::string host;
  int port = 0;  // 0: any free one
};
// "127.0.0.1:9464", "[::1]:9464". kInvalidArgument quotes the text.
ckpt::Result<HttpAddress> parse_http_address(std::string_view text);

// Reads the file into `config`. Errors name the file, the key and the line.
ckpt::Status load_config(const std::string& path, Config& config);

// Sets one key from a flag or an environment variable, overriding the file. `place`
// names the flag or variable; errors begin with it. The key's value must be a text in
// the file.
ckpt::Status set_config(Config& config, std::string_view key, std::string place,
                        const std::string& text);

// Checks that do not depend on the file: sizes fit together and into this machine's memory, the
// engine is known, the address is valid. Fills in unset values. Never changes values that were set;
// defaults are adapted to them. Errors begin with the origin of the value.
ckpt::Status validate(Config& config);

// Fails if the configured disk_reserve is as large as the file system of `data`, so that no
// snapshot could be saved. ckptd only warns of this at startup; --check-config fails.
ckpt::Status check_disk_reserve(const Config& config);

}  // namespace ckptd
