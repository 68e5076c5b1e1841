#include "trainer/elastic/events.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "formats/base/json_dump.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
using nlohmann::json;

namespace {

constexpr std::array<std::string_view, 20> kKinds = {
    "joining", "connecting", "restoring",  "training",   "step",      "taking", "snapshot",
    "saving",  "dying",      "group_lost", "log",        "saved",     "fatal",  "pacing",
    "drained", "alive",      "replanned",  "regrouping", "postponed", "notice"};

// Of kPacing, kTaking and kSnapshot.
template <typename Event, typename Visit>
void visit_snapshot_fields(Event& event, Visit&& visit) {
  visit("checkpoint_every", event.checkpoint_every);
  visit("experts_per_checkpoint", event.experts_per_checkpoint);
  visit("experts_per_snapshot", event.experts_per_snapshot);
  visit("experts", event.experts);
  visit("memory_experts", event.memory_experts);
  visit("rank_bytes_max", event.rank_bytes_max);
  visit("rank_bytes_mean", event.rank_bytes_mean);
  visit("bytes_kept", event.bytes_kept);
  visit("durable", event.durable);
  visit("taken_in", event.taken_in);
  visit("bytes", event.bytes);
  visit("durable_ms", event.durable_ms);
  visit("no_answer", event.no_answer);
}

// Calls visit(name, field) for every field but the kind: one list for writing and reading.
template <typename Event, typename Visit>
void visit_fields(Event& event, Visit&& visit) {
  visit("rank", event.rank);
  visit("time_ns", event.time_ns);
  visit("epoch", event.epoch);
  visit("step", event.step);
  visit("text", event.text);
  visit("pid", event.pid);
  visit("resumed", event.resumed);
  visit("lineage", event.lineage);
  visit("collectives", event.collectives);
  visit("bytes_memory", event.bytes_memory);
  visit("bytes_disk", event.bytes_disk);
  visit("stale_units", event.stale_units);
  visit("lost_tokens", event.lost_tokens);
  visit("goes_on", event.goes_on);
  visit("joins", event.joins);
  visit("group", event.group);
  visit("effective_replicas", event.effective_replicas);
  visit("bytes_moved", event.bytes_moved);
  visit("regroup_ms", event.regroup_ms);
  visit("plan_ms", event.plan_ms);
  visit("migrate_ms", event.migrate_ms);
  visit("moved", event.moved);
  visit("balance_before", event.balance_before);
  visit("balance_after", event.balance_after);
  visit("gain_ms", event.gain_ms);
  visit("cost_ms", event.cost_ms);
  visit("layer", event.layer);
  visit("slots_before", event.slots_before);
  visit("slots_after", event.slots_after);
  visit("plt", event.plt);
  visit("plt_rollback", event.plt_rollback);
  visit("lost", event.lost);
  visit("experts_from_seed", event.experts_from_seed);
  visit("failures", event.failures);
  visit("training_ms", event.training_ms);
  visit("applied", event.applied);
  visit("ms", event.ms);
  visit("waited_ms", event.waited_ms);
  visit("stall_ms", event.stall_ms);
  visit("room_ms", event.room_ms);
  visit("slabs_ms", event.slabs_ms);
  visit("snapshots_open", event.snapshots_open);
  visit("learning_rate", event.learning_rate);
  visit("gradient_norm", event.gradient_norm);
  visit("busiest_rows", event.busiest_rows);
  visit("max_over_mean", event.max_over_mean);
  visit("routed", event.routed);
  visit("resumed_at", event.resumed_at);
  visit("resumed_versions", event.resumed_versions);
  visit("rolled_back", event.rolled_back);
  visit("rolled_back_to", event.rolled_back_to);
  visit("code", event.code);
  visit_snapshot_fields(event, visit);
}

}  // namespace

std::string_view kind_name(RankEvent::Kind kind) { return kKinds[static_cast<size_t>(kind)]; }

namespace {

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

// 8 hex digits, as the report and the metrics have them.
bool read_loss_bits(const json& digits, uint32_t& bits) {
  if (!digits.is_string()) return false;
  const auto& text = digits.get_ref<const std::string&>();
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, bits, 16);
  return text.size() == 8 && error == std::errc() && stopped == end;
}

}  // namespace

std::string to_line(const RankEvent& event) {
  json line;
  line["event"] = kind_name(event.kind);
  const bool of_rank = event.kind != RankEvent::Kind::kNotice;  // else of the supervisor
  line["rank"] = of_rank ? json(event.rank) : json();
  if (event.time_ns != 0) line["time"] = wall_time(event.time_ns);
  if (event.kind == RankEvent::Kind::kStep || event.loss_bits != 0) {
    line["loss_bits"] = fmt::format("{:08x}", event.loss_bits);
  }
  const RankEvent defaults;
  // Walks both in step: a field is written only if it says something.
  const json empty = [&] {
    json all;
    visit_fields(defaults, [&](const char* name, const auto& field) { all[name] = field; });
    return all;
  }();
  visit_fields(event, [&](const char* name, const auto& field) {
    json value = field;
    if (value != empty[name]) line[name] = std::move(value);
  });
  return ckpt::base::dump_json(line) + '\n';
}

Result<RankEvent> parse_event(std::string_view line) {
  const auto bad = [&] {
    return make_error(ErrorCode::kInvalidArgument, "not an event of a rank: {}", line);
  };
  const json document = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.value("event", json()).is_string()) return bad();
  RankEvent event;
  const std::string kind = document["event"];
  const auto known = std::find(kKinds.begin(), kKinds.end(), kind);
  if (known == kKinds.end()) return bad();
  event.kind = static_cast<RankEvent::Kind>(known - kKinds.begin());
  try {
    visit_fields(event, [&](const char* name, auto& field) {
      const auto found = document.find(name);
      if (found != document.end() && !found->is_null()) found->get_to(field);
    });
  } catch (const json::exception&) {
    return bad();
  }
  const auto bits = document.find("loss_bits");
  if (bits != document.end() && !read_loss_bits(*bits, event.loss_bits)) return bad();
  return event;
}

void EventReader::append(std::string_view bytes) { buffer_ += bytes; }

std::vector<RankEvent> EventReader::take() {
  std::vector<RankEvent> events;
  size_t begin = 0;
  for (size_t end; (end = buffer_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = buffer_.substr(begin, end - begin);
    Result<RankEvent> event = parse_event(line);
    if (!event.ok()) event = RankEvent{.kind = RankEvent::Kind::kLog, .text = line};
    events.push_back(std::move(event).value());
  }
  buffer_.erase(0, begin);
  return events;
}

void EventWriter::write(RankEvent event) {
  const std::lock_guard lock(writing_);
  event.rank = rank_;
  event.time_ns = monotonic_ns();
  const std::string line = to_line(event);
  size_t written = 0;
  while (written < line.size()) {
    const ssize_t n = ::write(fd_, line.data() + written, line.size() - written);
    if (n < 0 && errno != EINTR) return;
    if (n > 0) written += static_cast<size_t>(n);
  }
}

void EventWriter::log(const std::string& text) {
  write({.kind = RankEvent::Kind::kLog, .text = text});
}

uint64_t monotonic_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

double ms_between(uint64_t from_ns, uint64_t to_ns) {
  return to_ns > from_ns ? static_cast<double>(to_ns - from_ns) / 1e6 : 0;
}

}  // namespace moetrain
