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

// Who said a value.
struct Origin {
  std::string place;       // "/etc/ckptd/ckptd.toml:3", "--arena", "CKPTD_IO"
  bool names_key = false;  // a flag does, a line of a file is said together with its key
};

struct Config {
  std::string data;    // the store's directory; created if it is not there
  std::string listen;  // path of the unix socket; empty: DATA/ckptd.sock
  std::string http;    // HOST:PORT; empty: no HTTP
  std::string io = "uring";
  std::optional<IoShape> io_shape;                // not said: what the disk does best
  uint64_t arena_bytes = 2ull << 30;              // all sessions together
  uint64_t session_arena_bytes = 512ull << 20;    // of a session that does not ask
  uint64_t session_arena_max_bytes = UINT64_MAX;  // a session that asks for more is refused
  // Of one user's sessions together, but root's and the daemon's own. Not said: all of `arena`
  // where one other user may connect, three quarters of it where several may.
  std::optional<uint64_t> user_arena_max_bytes;
  std::optional<uint64_t> warm_pool_bytes;  // beside `arena`; not said: session_arena
  uint64_t segment_bytes = limits::kSegmentBytesDefault;
  uint64_t disk_reserve_bytes = 256ull << 20;  // never used by snapshots
  std::chrono::milliseconds snapshot_deadline = limits::kSnapshotDeadlineDefault;
  uint64_t scrub_bytes_per_second = limits::kScrubRateDefault;  // 0: no background reads
  std::chrono::milliseconds scrub_interval = limits::kScrubIntervalDefault;  // 0: no passes
  std::vector<uid_t> allow_uids;  // besides root and the daemon's own
  unsigned workers = 0;           // threads for checksums; 0: as many as cores, at most 4
  // Of sessions that do not say: "off", "warn" or "refuse" for a snapshot that raises an alarm.
  std::string alarms = "warn";
  CodecChoice codec = CodecChoice::kNone;
  std::string log_level = "info";
  std::string log_format = "text";                  // or "json", an object a line
  std::map<std::string, Origin, std::less<>> said;  // by key; what is not in it has its default
};

struct HttpAddress {
  std::string host;
  int port = 0;  // 0: any free one
};
// "127.0.0.1:9464", "[::1]:9464". kInvalidArgument quotes the text.
ckpt::Result<HttpAddress> parse_http_address(std::string_view text);

// Reads the file into `config`. Errors name the file, the key and the line.
ckpt::Status load_config(const std::string& path, Config& config);

// The value of one key as a flag or a variable of the environment has it, over what the file said.
// `place` names either; errors begin with it. The key must be one whose value is a text in the
// file.
ckpt::Status set_config(Config& config, std::string_view key, std::string place,
                        const std::string& text);

// What does not depend on the file: sizes that fit together and this machine's memory, a known
// engine, an address that is one. Fills what is left empty. What is said is never changed; a
// default gives way to it. Errors begin with who said the value.
ckpt::Status validate(Config& config);

// Error if the configured disk_reserve is as large as the file system of `data`, so that no
// snapshot could be saved. ckptd only warns of this at a start; --check-config fails.
ckpt::Status check_disk_reserve(const Config& config);

}  // namespace ckptd
