#include "trainer/elastic/events.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "formats/base/json_dump.h"
#include "trainer/elastic/event_fields.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
using nlohmann::json;

namespace {

// Visitor of fields() that puts each field into a JSON object, unless it has its default value.
class FieldWriter {
 public:
  // `defaults`: the same fields of a default object. An empty one: all fields are written.
  FieldWriter(json& line, const json& defaults) : line_(line), defaults_(defaults) {}

  template <typename Value>
  void operator()(const char* name, const Value& value) {
    json written = value;
    const auto found = defaults_.find(name);
    if (found == defaults_.end() || *found != written) line_[name] = std::move(written);
  }
  // Never left out.
  void hex(const char* name, uint32_t bits) { line_[name] = fmt::format("{:08x}", bits); }

 private:
  json& line_;
  const json& defaults_;
};

template <typename Part>
json all_fields(const Part& part) {
  json all = json::object();
  const json none = json::object();
  FieldWriter writer(all, none);
  fields(writer, part);
  return all;
}

template <typename Part>
void write_fields(json& line, const Part& part) {
  static const json defaults = all_fields(Part{});
  FieldWriter writer(line, defaults);
  fields(writer, part);
}

// Visitor of fields() that takes each field out of a JSON object. A missing field, or one that is
// null, keeps its value. Throws json::exception for a value of another type.
class FieldReader {
 public:
  explicit FieldReader(const json& line) : line_(line) {}

  template <typename Value>
  void operator()(const char* name, Value& value) {
    const auto found = line_.find(name);
    if (found != line_.end() && !found->is_null()) found->get_to(value);
  }
  void hex(const char* name, uint32_t& bits) {
    const auto found = line_.find(name);
    if (found != line_.end() && !read_hex(*found, bits)) well_formed_ = false;
  }
  // False: bits were not 8 hex digits.
  bool well_formed() const { return well_formed_; }

 private:
  static bool read_hex(const json& digits, uint32_t& bits) {
    if (!digits.is_string()) return false;
    const auto& text = digits.get_ref<const std::string&>();
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, bits, 16);
    return text.size() == 8 && error == std::errc() && stopped == end;
  }

  const json& line_;
  bool well_formed_ = true;
};

// The kind with this name, its fields at their defaults. False: there is none.
bool set_kind(std::string_view name, EventBody& body) {
  return [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return ((std::variant_alternative_t<kIndex, EventBody>::kName == name &&
             (body.emplace<kIndex>(), true)) ||
            ...);
  }
  (std::make_index_sequence<std::variant_size_v<EventBody>>());
}

// A moment of CLOCK_MONOTONIC by the wall clock, as ckptd's log writes its times.
std::string wall_time(uint64_t monotonic) {
  using std::chrono::microseconds;
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  const auto ago = std::chrono::steady_clock::now().time_since_epoch() -
                   std::chrono::nanoseconds(static_cast<int64_t>(monotonic));
  const int64_t us = std::chrono::duration_cast<microseconds>(wall - ago).count();
  const std::time_t seconds = us / 1'000'000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     us % 1'000'000);
}

}  // namespace

std::string_view kind_name(const EventBody& body) {
  return std::visit([](const auto& kind) { return kind.kName; }, body);
}

std::string to_line(const RankEvent& event) {
  const EventHeader& header = event.header;
  json line = json::object();
  line["event"] = kind_name(event.body);
  const bool of_rank = event.as<NoticeEvent>() == nullptr;  // else of the supervisor
  line["rank"] = of_rank ? json(header.rank) : json();
  if (header.time_ns != 0) line["time"] = wall_time(header.time_ns);
  write_fields(line, header);
  std::visit([&](const auto& body) { write_fields(line, body); }, event.body);
  return ckpt::base::dump_json(line) + '\n';
}

Result<RankEvent> parse_event(std::string_view line) {
  const auto bad = [&] {
    return make_error(ErrorCode::kInvalidArgument, "not an event of a rank: {}", line);
  };
  const json document = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.value("event", json()).is_string()) return bad();
  RankEvent event;
  if (!set_kind(document["event"].get_ref<const std::string&>(), event.body)) return bad();
  FieldReader reader(document);
  try {
    fields(reader, event.header);
    std::visit([&](auto& body) { fields(reader, body); }, event.body);
  } catch (const json::exception&) {
    return bad();
  }
  if (!reader.well_formed()) return bad();
  return event;
}

void EventReader::append(std::string_view bytes) { buffer_ += bytes; }

std::vector<RankEvent> EventReader::take() {
  std::vector<RankEvent> events;
  size_t begin = 0;
  for (size_t end; (end = buffer_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = buffer_.substr(begin, end - begin);
    Result<RankEvent> event = parse_event(line);
    if (!event.ok()) event = RankEvent{.header = {}, .body = LogEvent{line}};
    events.push_back(std::move(event).value());
  }
  buffer_.erase(0, begin);
  return events;
}

void EventWriter::write(EventHeader at, EventBody body) {
  const std::lock_guard lock(writing_);
  at.rank = rank_;
  at.time_ns = monotonic_ns();
  const std::string line = to_line({.header = at, .body = std::move(body)});
  size_t written = 0;
  while (written < line.size()) {
    const ssize_t n = ::write(fd_, line.data() + written, line.size() - written);
    if (n < 0 && errno != EINTR) return;
    if (n > 0) written += static_cast<size_t>(n);
  }
}

void EventWriter::log(const std::string& text) { write(LogEvent{text}); }

uint64_t monotonic_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

double ms_between(uint64_t from_ns, uint64_t to_ns) {
  return to_ns > from_ns ? static_cast<double>(to_ns - from_ns) / 1e6 : 0;
}

}  // namespace moetrain
