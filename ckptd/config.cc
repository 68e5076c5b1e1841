#include "ckptd/config.h"

#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string_view>
#include <thread>

#include "formats/base/ids.h"
#include "formats/base/parse.h"

namespace ckptd {

namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Result;
using ckpt::Status;

// Reads one value of the file into the field it sets.
using Setter = std::function<Status(const toml::node&)>;

ckpt::Error wrong_type(std::string_view wanted) {
  return make_error(ErrorCode::kInvalidArgument, "should be {}", wanted);
}

Setter text(std::string& field) {
  return [&field](const toml::node& node) -> Status {
    const auto value = node.value_exact<std::string>();
    if (!value) return wrong_type("a text");
    field = *value;
    return {};
  };
}

Setter size(uint64_t& field) {
  return [&field](const toml::node& node) -> Status {
    const auto value = node.value_exact<std::string>();
    if (!value) return wrong_type("a size in quotes, such as \"64MiB\"");
    CKPT_ASSIGN(field, ckpt::base::parse_size(*value));
    return {};
  };
}

Setter size_or_none(std::optional<uint64_t>& field) {
  return [&field](const toml::node& node) -> Status {
    uint64_t bytes = 0;
    CKPT_TRY(size(bytes)(node));
    field = bytes;
    return {};
  };
}

Setter duration(std::chrono::milliseconds& field) {
  return [&field](const toml::node& node) -> Status {
    const auto value = node.value_exact<std::string>();
    if (!value) return wrong_type("a duration in quotes, such as \"10s\"");
    CKPT_ASSIGN(const auto nanoseconds, ckpt::base::parse_duration(*value));
    field = std::chrono::duration_cast<std::chrono::milliseconds>(nanoseconds);
    return {};
  };
}

// Bytes per second, 0 for none.
Setter scrub_rate(uint64_t& field) {
  return [&field](const toml::node& node) -> Status {
    uint64_t rate = 0;
    CKPT_TRY(size(rate)(node));
    if (rate != 0 && rate < limits::kScrubRateMin) {
      return make_error(ErrorCode::kInvalidArgument, "should be \"0\" or at least {} per second",
                        ckpt::base::format_size(limits::kScrubRateMin));
    }
    field = rate;
    return {};
  };
}

// None, or so much that the clock's ticks do not matter.
Setter none_or_seconds(std::chrono::milliseconds& field) {
  return [&field](const toml::node& node) -> Status {
    std::chrono::milliseconds interval{0};
    CKPT_TRY(duration(interval)(node));
    if (interval.count() != 0 && interval < std::chrono::seconds(1)) {
      return wrong_type("\"0s\" or at least \"1s\"");
    }
    field = interval;
    return {};
  };
}

Setter codec(CodecChoice& field) {
  return [&field](const toml::node& node) -> Status {
    const auto value = node.value_exact<std::string>();
    if (!value) return wrong_type("a text");
    CKPT_ASSIGN(field, parse_codec_choice(*value));
    return {};
  };
}

Setter io_shape(std::optional<IoShape>& field) {
  return [&field](const toml::node& node) -> Status {
    const auto value = node.value_exact<std::string>();
    if (!value) return wrong_type("a text");
    CKPT_ASSIGN(field, parse_io_shape_choice(*value));
    return {};
  };
}

Setter number(unsigned& field) {
  return [&field](const toml::node& node) -> Status {
    const auto value = node.value_exact<int64_t>();
    if (!value || *value < 0 || *value > 1024) return wrong_type("a number from 0 to 1024");
    field = static_cast<unsigned>(*value);
    return {};
  };
}

Setter uids(std::vector<uid_t>& field) {
  return [&field](const toml::node& node) -> Status {
    const toml::array* list = node.as_array();
    if (list == nullptr) return wrong_type("a list of user ids, such as [1000]");
    std::vector<uid_t> values;
    for (const toml::node& entry : *list) {
      const auto value = entry.value_exact<int64_t>();
      if (!value || *value < 0 || *value >= std::numeric_limits<uid_t>::max()) {
        return wrong_type("a list of user ids, such as [1000]");
      }
      values.push_back(static_cast<uid_t>(*value));
    }
    field = std::move(values);
    return {};
  };
}

std::map<std::string_view, Setter> setters(Config& config) {
  return {{"data", text(config.data)},
          {"listen", text(config.listen)},
          {"http", text(config.http)},
          {"io", text(config.io)},
          {"io_shape", io_shape(config.io_shape)},
          {"arena", size(config.arena_bytes)},
          {"session_arena", size(config.session_arena_bytes)},
          {"session_arena_max", size(config.session_arena_max_bytes)},
          {"warm_pool", size_or_none(config.warm_pool_bytes)},
          {"segment", size(config.segment_bytes)},
          {"disk_reserve", size(config.disk_reserve_bytes)},
          {"snapshot_deadline", duration(config.snapshot_deadline)},
          {"scrub_rate", scrub_rate(config.scrub_bytes_per_second)},
          {"scrub_interval", none_or_seconds(config.scrub_interval)},
          {"recode_after", none_or_seconds(config.recode_after)},
          {"allow_uids", uids(config.allow_uids)},
          {"workers", number(config.workers)},
          {"alarms", text(config.alarms)},
          {"codec", codec(config.codec)},
          {"log_level", text(config.log_level)},
          {"log_format", text(config.log_format)}};
}

uint64_t memory_bytes() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

Result<HttpAddress> parse_http_address(std::string_view text) {
  const auto colon = text.rfind(':');
  HttpAddress address;
  bool good = colon != std::string_view::npos && colon > 0;
  if (good) {
    std::string_view host = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    address.host = host;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
    good = !host.empty() && error == std::errc{} && end == port.data() + port.size() &&
           address.port >= 0 && address.port <= 65535;
  }
  if (!good) {
    return make_error(ErrorCode::kInvalidArgument,
                      "http {}: should be HOST:PORT, such as 127.0.0.1:9464", text);
  }
  return address;
}

Status load_config(const std::string& path, Config& config) {
  // A directory can be opened and reads as an empty file.
  std::error_code failure;
  const auto type = std::filesystem::status(path, failure).type();
  if (type != std::filesystem::file_type::regular) {
    return make_error(
        ErrorCode::kInvalidArgument, "{}: {}", path,
        type == std::filesystem::file_type::not_found ? "no such file" : "not a regular file");
  }
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    return make_error(ErrorCode::kInvalidArgument, "{}{}: {}", path,
                      line > 0 ? fmt::format(":{}", line) : "", error.description());
  }
  const auto known = setters(config);
  for (const auto& [key, node] : table) {
    const auto line = key.source().begin.line;
    const auto setter = known.find(key.str());
    if (setter == known.end()) {
      std::string names;
      for (const auto& [name, unused] : known) names += fmt::format(" {}", name);
      return make_error(ErrorCode::kInvalidArgument, "{}:{}: unknown key {}; the keys are:{}", path,
                        line, key.str(), names);
    }
    const Status set = setter->second(node);
    if (!set.ok()) {
      return make_error(ErrorCode::kInvalidArgument, "{}:{}: {}: {}", path, line, key.str(),
                        set.error().message);
    }
  }
  return {};
}

Status validate(Config& config) {
  if (config.data.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "no data directory: pass --data DIR");
  }
  if (config.listen.empty()) config.listen = config.data + "/ckptd.sock";
  if (config.listen.starts_with("unix:")) config.listen.erase(0, 5);
  if (config.io != "uring" && config.io != "pwritev") {
    return make_error(ErrorCode::kInvalidArgument, "io {}: the engines are uring and pwritev",
                      config.io);
  }
  if (config.alarms != "off" && config.alarms != "warn" && config.alarms != "refuse") {
    return make_error(ErrorCode::kInvalidArgument, "alarms {}: off, warn or refuse", config.alarms);
  }
  if (config.arena_bytes > memory_bytes()) {
    return make_error(ErrorCode::kInvalidArgument, "arena {}: more than this machine's memory ({})",
                      ckpt::base::format_size(config.arena_bytes),
                      ckpt::base::format_size(memory_bytes()));
  }
  if (config.session_arena_bytes > config.arena_bytes) {
    config.session_arena_bytes = config.arena_bytes;
  }
  if (config.session_arena_bytes > config.session_arena_max_bytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      "session_arena {}: more than session_arena_max ({})",
                      ckpt::base::format_size(config.session_arena_bytes),
                      ckpt::base::format_size(config.session_arena_max_bytes));
  }
  if (!config.warm_pool_bytes) config.warm_pool_bytes = config.session_arena_bytes;
  if (*config.warm_pool_bytes > memory_bytes()) {
    return make_error(
        ErrorCode::kInvalidArgument, "warm_pool {}: more than this machine's memory ({})",
        ckpt::base::format_size(*config.warm_pool_bytes), ckpt::base::format_size(memory_bytes()));
  }
  const uint64_t slab_bytes = ckpt::kSlabBytesMin;
  if (config.session_arena_bytes < 4 * slab_bytes) {
    return make_error(ErrorCode::kInvalidArgument, "arena {}: a session needs at least {}",
                      ckpt::base::format_size(config.session_arena_bytes),
                      ckpt::base::format_size(4 * slab_bytes));
  }
  if (config.segment_bytes < (16ull << 20) || config.segment_bytes % ckpt::kBlockBytes != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "segment {}: at least 16MiB, and a multiple of 4KiB",
                      ckpt::base::format_size(config.segment_bytes));
  }
  if (config.snapshot_deadline < std::chrono::seconds(1)) {
    return make_error(ErrorCode::kInvalidArgument, "snapshot_deadline {} ms: at least 1s",
                      config.snapshot_deadline.count());
  }
  if (config.recode_after.count() > 0 && config.scrub_bytes_per_second == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "recode_after {} s: scrub_rate is 0, nothing is read in the background",
                      config.recode_after.count() / 1000);
  }
  if (!config.http.empty()) CKPT_TRY(parse_http_address(config.http));
  if (config.workers == 0) config.workers = std::clamp(std::thread::hardware_concurrency(), 1u, 4u);
  return {};
}

}  // namespace ckptd
