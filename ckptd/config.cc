#include "ckptd/config.h"

#include <toml++/toml.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "formats/base/assert.h"
#include "formats/base/parse.h"
#include "formats/base/printable.h"

namespace ckptd {

namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::Status;

// Reads one value of the file into the field it sets.
using Setter = std::function<Status(const toml::node&)>;

ckpt::Error wrong_type(std::string_view wanted) {
  return make_error(ErrorCode::kInvalidArgument, "should be {}", wanted);
}

Setter text(std::string& field) {
  return [&field](const toml::node& node) -> Status {
    const auto value = node.value_exact<std::string>();
    if (!value) return wrong_type("a text in quotes");
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

// Zero, or large enough that clock ticks do not matter.
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
    if (!value) return wrong_type("a text in quotes");
    CKPT_ASSIGN(field, parse_codec_choice(*value));
    return {};
  };
}

Setter io_shape(std::optional<IoShape>& field) {
  return [&field](const toml::node& node) -> Status {
    const auto value = node.value_exact<std::string>();
    if (!value) return wrong_type("a text in quotes");
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
          {"user_arena_max", size_or_none(config.user_arena_max_bytes)},
          {"warm_pool", size_or_none(config.warm_pool_bytes)},
          {"segment", size(config.segment_bytes)},
          {"disk_reserve", size(config.disk_reserve_bytes)},
          {"snapshot_deadline", duration(config.snapshot_deadline)},
          {"scrub_rate", scrub_rate(config.scrub_bytes_per_second)},
          {"scrub_interval", none_or_seconds(config.scrub_interval)},
          {"allow_uids", uids(config.allow_uids)},
          {"workers", number(config.workers)},
          {"alarms", text(config.alarms)},
          {"codec", codec(config.codec)},
          {"log_level", text(config.log_level)},
          {"log_format", text(config.log_format)}};
}

// Keys of older versions.
constexpr std::pair<std::string_view, std::string_view> kRemovedKeys[] = {
    {"recode_after", "it was removed and nothing replaces it: delete this line"}};

ckpt::Error not_a_key(std::string_view place, std::string_view key,
                      const std::map<std::string_view, Setter>& known) {
  for (const auto& [removed, why] : kRemovedKeys) {
    if (key == removed) {
      return make_error(ErrorCode::kInvalidArgument, "{}: {}: {}", place, key, why);
    }
  }
  std::string names;
  for (const auto& [name, unused] : known) names += fmt::format(" {}", name);
  return make_error(ErrorCode::kInvalidArgument, "{}: unknown key {}; the keys are:{}", place,
                    ckpt::base::printable(key), names);
}

// Error for an invalid value. A text in the file may contain anything, escapes included.
ckpt::Error unfit(std::string_view place, const ckpt::Error& error) {
  return make_error(error.code, "{}: {}", place, ckpt::base::printable(error.message, 512));
}

}  // namespace

Status load_config(const std::string& path, Config& config) {
  // A directory can be opened, and reads as an empty file.
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
    return make_error(ErrorCode::kInvalidArgument,
                      "{}{}: {}; write sizes, times and names in quotes, as in arena = \"16GiB\"",
                      path, line > 0 ? fmt::format(":{}", line) : "",
                      ckpt::base::printable(error.description(), 512));
  }
  const auto known = setters(config);
  for (const auto& [key, node] : table) {
    const std::string place = fmt::format("{}:{}", path, key.source().begin.line);
    const auto setter = known.find(key.str());
    if (setter == known.end()) return not_a_key(place, key.str(), known);
    const Status set = setter->second(node);
    if (!set.ok()) return unfit(fmt::format("{}: {}", place, key.str()), set.error());
    config.origins[std::string(key.str())] = {place, false};
  }
  return {};
}

Status set_config(Config& config, std::string_view key, std::string place,
                  const std::string& text) {
  const auto known = setters(config);
  const auto setter = known.find(key);
  CKPT_ASSERT(setter != known.end());
  const Status set = setter->second(toml::value<std::string>(text));
  if (!set.ok()) return unfit(place, set.error());
  config.origins[std::string(key)] = {std::move(place), true};
  return {};
}

}  // namespace ckptd
