// libckpt for C++17 and later: owning handles and results over the C ABI of ckpt.h, header only.
//
// Nothing throws (but std::bad_alloc); a function that can fail returns an Outcome, whose error
// has the status and a message that names the object. Rules of threads and time are those of
// ckpt.h: one thread at a time uses a Session and its Snapshots, and every wait has a timeout.
//
//   auto session = ckpt::client::Session::open({});             // $CKPTD_SOCKET, $CKPTD_RUN
//   if (!session) { std::cerr << session.error().message; return 1; }
#ifndef CKPT_CLIENT_HPP_
#define CKPT_CLIENT_HPP_

#include <ckpt/ckpt.h>
#include <ckpt/ckpt_blobs.h>
#include <ckpt/ckpt_grow.h>
#include <ckpt/ckpt_hold.h>
#include <ckpt/ckpt_liveness.h>

#include <ckpt/client_handles.hpp>
#include <ckpt/client_types.hpp>
#include <ckpt/outcome.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ckpt::client {

struct Answer {
  std::string json;
  int exit_code = 0;
};

// The connection of one rank (or of a tool: OpenOptions::control), and its arena.
class Session {
 public:
  static Outcome<Session> open(const OpenOptions& options) {
    ckpt_open_options raw{};
    raw.struct_size = sizeof raw;
    raw.socket = detail::or_null(options.socket);
    raw.run = detail::or_null(options.run);
    raw.client_name = detail::or_null(options.client_name);
    raw.arena_bytes = options.arena_bytes;
    raw.slab_bytes = options.slab_bytes;
    raw.control = options.control ? 1 : 0;
    raw.timeout_ms = options.timeout_ms;
    raw.alarms = options.alarms;
    ckpt_liveness liveness{};
    liveness.struct_size = sizeof liveness;
    liveness.heartbeat_ms = options.heartbeat_ms;
    liveness.interrupted = options.interrupted;
    liveness.interrupted_context = options.interrupted_context;
    if (options.waiting) {
      liveness.waiting = [](void* context, const char* why) {
        static_cast<const OpenOptions*>(context)->waiting(why);
      };
      liveness.waiting_context = const_cast<OpenOptions*>(&options);
    }
    raw.liveness = &liveness;
    ckpt_session* handle = nullptr;
    char message[1024] = "";
    int error_detail = CKPT_DETAIL_NONE;
    raw.error_detail = &error_detail;
    const ckpt_status status = ckpt_open(&raw, &handle, message, sizeof message);
    if (status != CKPT_OK) return Error{status, message, error_detail};
    return Session(handle);
  }

  ckpt_session* handle() const { return handle_.get(); }
  int fd() const { return ckpt_fd(handle_.get()); }
  // Silence of the daemon when a call last read the socket; 0 while the daemon answers.
  uint64_t silence_ms() const { return ckpt_silence_ms(handle_.get()); }
  Outcome<void> poll(uint32_t timeout_ms) { return check(ckpt_poll(handle_.get(), timeout_ms)); }

  Outcome<void> register_units(const std::vector<UnitInfo>& units, const std::string& metadata = "",
                               uint32_t timeout_ms = 60'000) {
    const detail::RawUnits raw(units);
    ckpt_register_options options{};
    options.struct_size = sizeof options;
    options.metadata = detail::or_null(metadata);
    // Include defaults and zeros: they replace the values of an earlier registration.
    options.codecs = raw.codecs.data();
    options.timeout_ms = timeout_ms;
    options.flags = raw.flags.data();
    return check(
        ckpt_register_units_with(handle_.get(), raw.units.data(), raw.units.size(), &options));
  }

  // The numbers of units beyond the registration: see ckpt_grow.h.
  Outcome<std::vector<uint32_t>> grow(const std::vector<UnitInfo>& units) {
    const detail::RawUnits raw(units);
    std::vector<uint32_t> numbers(units.size());
    ckpt_grow_options options{};
    options.struct_size = sizeof options;
    options.units = raw.units.data();
    options.count = raw.units.size();
    options.codecs = raw.codecs.data();
    options.flags = raw.flags.data();
    options.numbers = numbers.data();
    const ckpt_status status = ckpt_grow(handle_.get(), &options);
    if (status != CKPT_OK) return failed(status);
    return numbers;
  }

  Outcome<Epoch> join(const JoinOptions& options) {
    ckpt_join_options raw{};
    raw.struct_size = sizeof raw;
    raw.rank = options.rank;
    raw.size = options.size;
    raw.resume = options.resume;
    raw.resume_lineage = options.resume_lineage;
    raw.resume_step = options.resume_step;
    raw.timeout_ms = options.timeout_ms;
    raw.elastic = options.elastic ? 1 : 0;
    raw.member = options.member;
    raw.grace_ms = options.grace_ms;
    raw.job = options.job;
    if (options.waiting) {
      raw.waiting = [](void* user, const char* why) {
        static_cast<const JoinOptions*>(user)->waiting(why);
      };
      raw.waiting_user = const_cast<JoinOptions*>(&options);
    }
    ckpt_epoch joined{};
    joined.struct_size = sizeof joined;
    const ckpt_status status = ckpt_join(handle_.get(), &raw, &joined);
    if (status != CKPT_OK) return failed(status);
    Epoch epoch;
    epoch.epoch = joined.epoch;
    epoch.rank = joined.rank;
    epoch.size = joined.size;
    epoch.lineage = joined.lineage;
    if (joined.has_resume != 0) {
      epoch.resume = ViewPoint{joined.resume_lineage, joined.resume_step};
    }
    epoch.goes_on = joined.goes_on != 0;
    epoch.previous_size = joined.previous_size;
    const size_t members = joined.members != nullptr ? joined.size : 0;
    epoch.members.assign(joined.members, joined.members + members);
    const size_t before = joined.previous_ranks != nullptr ? joined.size : 0;
    epoch.previous_ranks.assign(joined.previous_ranks, joined.previous_ranks + before);
    return epoch;
  }
  // The lost ranks once the joined epoch has ended; nothing before.
  std::optional<std::vector<uint32_t>> epoch_ended() const {
    size_t count = 0;
    if (ckpt_epoch_ended(handle_.get(), nullptr, 0, &count) == 0) return std::nullopt;
    std::vector<uint32_t> ranks(count);
    ckpt_epoch_ended(handle_.get(), ranks.data(), ranks.size(), &count);
    return ranks;
  }
  uint32_t joiners_waiting() const { return ckpt_joiners_waiting(handle_.get()); }
  Outcome<void> leave(uint32_t timeout_ms = 10'000) {
    return check(ckpt_leave(handle_.get(), timeout_ms));
  }

  Outcome<void> kv_set(const std::string& key, const std::string& value) {
    return check(ckpt_kv_set(handle_.get(), key.c_str(), value.data(), value.size()));
  }
  Outcome<std::string> kv_get(const std::string& key, uint32_t timeout_ms) {
    std::string value(4096, '\0');
    for (;;) {
      size_t bytes = value.size();
      const ckpt_status status =
          ckpt_kv_get(handle_.get(), key.c_str(), value.data(), &bytes, timeout_ms);
      const bool larger = status == CKPT_E_RESOURCE_EXHAUSTED && bytes > value.size();
      if (status != CKPT_OK && !larger) return failed(status);
      value.resize(bytes);
      if (!larger) return value;
    }
  }

  Outcome<Snapshot> begin(const SnapshotOptions& options) {
    std::vector<ckpt_metric> metrics;
    metrics.reserve(options.metrics.size());
    for (const Metric& metric : options.metrics) {
      metrics.push_back({metric.name.c_str(), metric.value});
    }
    ckpt_snapshot_options raw{};
    raw.struct_size = sizeof raw;
    raw.step = options.step;
    raw.attempt = options.attempt;
    raw.units = options.units.data();
    raw.unit_count = options.units.size();
    raw.fragments = options.fragments.data();
    raw.fragment_count = options.fragments.size();
    raw.out_of_slabs = options.out_of_slabs;
    raw.metrics = metrics.data();
    raw.metric_count = metrics.size();
    raw.timeout_ms = options.timeout_ms;
    raw.expert_tokens = options.expert_tokens.data();
    raw.expert_token_count = options.expert_tokens.size();
    raw.staleness_max = options.staleness_max;
    raw.no_wait = options.no_wait ? 1 : 0;
    raw.memory_units = options.memory_units.data();
    raw.memory_unit_count = options.memory_units.size();
    raw.expert_lost = options.expert_lost.data();
    raw.expert_lost_count = options.expert_lost.size();
    raw.streams = options.streams ? 1 : 0;
    raw.plan_ns = options.plan_ns;
    std::vector<ckpt_blob> blobs;
    blobs.reserve(options.blobs.size());
    for (const BlobSpec& blob : options.blobs) {
      blobs.push_back({blob.name.c_str(), blob.bytes, blob.global ? 1 : 0});
    }
    raw.blobs = blobs.data();
    raw.blob_count = blobs.size();
    ckpt_snapshot* snapshot = nullptr;
    const ckpt_status status = ckpt_snapshot_begin(handle_.get(), &raw, &snapshot);
    if (status != CKPT_OK) return failed(status);
    return Snapshot(handle_.get(), snapshot);
  }

  // Fills every range's `data`; one answer per range.
  Outcome<std::vector<Restored>> restore(const RestoreOptions& options,
                                         const std::vector<ckpt_range>& ranges) {
    const ckpt_restore_options raw = detail::raw_options(options);
    std::vector<ckpt_restored> answers(ranges.size());
    const ckpt_status status =
        ckpt_restore_read(handle_.get(), &raw, ranges.data(), ranges.size(), answers.data());
    if (status != CKPT_OK) return failed(status);
    return detail::from_raw(answers);
  }

  // The blobs of the commit that the options name; `exact`, `newest` and `memory` do not count.
  Outcome<Blobs> blobs(const RestoreOptions& options) {
    ckpt_blob_list_options raw{};
    raw.struct_size = sizeof raw;
    raw.run = detail::or_null(options.run);
    raw.lineage = options.lineage;
    raw.step = options.step;
    raw.latest = options.latest ? 1 : 0;
    raw.tag = detail::or_null(options.tag);
    raw.timeout_ms = options.timeout_ms;
    ckpt_blob_list list{};
    list.struct_size = sizeof list;
    const ckpt_status status = ckpt_blob_list_read(handle_.get(), &raw, &list);
    if (status != CKPT_OK) return failed(status);
    Blobs found;
    found.commit = {list.lineage, list.step};
    found.blobs.reserve(list.count);
    for (size_t i = 0; i < list.count; ++i) {
      const ckpt_blob_entry& entry = list.entries[i];
      found.blobs.push_back(
          {entry.name, entry.rank, entry.is_global != 0, entry.bytes, entry.crc32c, entry.unit});
    }
    return found;
  }
  // One blob, whole. rank: nothing for a global blob.
  Outcome<std::string> read_blob(const RestoreOptions& options, const std::string& name,
                                 std::optional<uint32_t> rank) {
    ckpt_blob_read_options raw{};
    raw.struct_size = sizeof raw;
    raw.run = detail::or_null(options.run);
    raw.lineage = options.lineage;
    raw.step = options.step;
    raw.latest = options.latest ? 1 : 0;
    raw.tag = detail::or_null(options.tag);
    raw.timeout_ms = options.timeout_ms;
    raw.name = name.c_str();
    raw.rank = rank.value_or(0);
    raw.is_global = rank ? 0 : 1;
    std::string bytes;
    for (;;) {
      raw.data = bytes.data();
      raw.capacity = bytes.size();
      uint64_t size = 0;
      const ckpt_status status = ckpt_blob_read(handle_.get(), &raw, &size);
      const bool larger = status == CKPT_E_RESOURCE_EXHAUSTED && size > bytes.size();
      if (status != CKPT_OK && !larger) return failed(status);
      bytes.resize(size);
      if (!larger) return bytes;
    }
  }

  Outcome<Hold> hold(const HoldOptions& options) {
    ckpt_hold_options raw{};
    raw.struct_size = sizeof raw;
    raw.run = detail::or_null(options.run);
    raw.lineage = options.lineage;
    raw.step = options.step;
    raw.latest = options.latest ? 1 : 0;
    raw.tag = detail::or_null(options.tag);
    raw.newest = options.newest ? 1 : 0;
    raw.timeout_ms = options.timeout_ms;
    ckpt_hold* hold = nullptr;
    const ckpt_status status = ckpt_hold_take(handle_.get(), &raw, &hold);
    if (status != CKPT_OK) return failed(status);
    return Hold(handle_.get(), hold);
  }

  Outcome<Answer> query(const std::string& verb, const std::string& arguments_json,
                        uint32_t timeout_ms) {
    char* json = nullptr;
    Answer answer;
    const ckpt_status status = ckpt_query(handle_.get(), verb.c_str(), arguments_json.c_str(),
                                          timeout_ms, &json, &answer.exit_code);
    if (status != CKPT_OK) return failed(status);
    answer.json = json;
    ckpt_free(json);
    return answer;
  }

 private:
  struct Close {
    void operator()(ckpt_session* session) const { ckpt_close(session); }
  };
  explicit Session(ckpt_session* handle) : handle_(handle) {}
  Error failed(ckpt_status status) const { return detail::error_of(handle_.get(), status); }
  Outcome<void> check(ckpt_status status) const {
    if (status == CKPT_OK) return {};
    return failed(status);
  }
  std::unique_ptr<ckpt_session, Close> handle_;
};

}  // namespace ckpt::client

#endif  // CKPT_CLIENT_HPP_
