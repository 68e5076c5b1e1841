#include <ckpt/ckpt_pieces.h>

#include <chrono>
#include <span>

#include "client/src/c_api.h"
#include "formats/base/crc32c.h"
#include "formats/expert_tokens.h"

namespace ckpt::lib {
namespace {

static_assert(CKPT_EXPERT_TOKENS_MAX == kExpertTokensMax, "what ckpt.h promises, ckptd takes");

constexpr uint32_t kSlabsTimeoutMs = 60'000;
// Interval at which a write of many pieces checks for interruption.
constexpr std::chrono::milliseconds kInterruptEvery{50};

// Leave out experts that have lost nothing, as the history does.
Status take_expert_tokens(const ckpt_snapshot_options& raw, SnapshotOptions& options) {
  if (raw.expert_lost_count != 0 && raw.expert_lost_count != raw.expert_token_count) {
    return make_error(ErrorCode::kInvalidArgument,
                      "step {}: expert_lost has {} counts, expert_tokens has {}", raw.step,
                      raw.expert_lost_count, raw.expert_token_count);
  }
  options.expert_tokens.reserve(raw.expert_token_count);
  for (size_t i = 0; i < raw.expert_token_count; ++i) {
    const ckpt_expert_tokens& from = raw.expert_tokens[i];
    options.expert_tokens.emplace_back(from.layer, from.expert, from.tokens);
    if (raw.expert_lost_count == 0 || raw.expert_lost[i] == 0) continue;
    options.expert_lost.emplace_back(from.layer, from.expert, raw.expert_lost[i]);
  }
  return ok_status();
}

Result<SnapshotOptions> snapshot_options(const ckpt_snapshot_options& raw) {
  if ((raw.unit_count > 0 && raw.units == nullptr) ||
      (raw.fragment_count > 0 && raw.fragments == nullptr) ||
      (raw.metric_count > 0 && raw.metrics == nullptr) ||
      (raw.expert_token_count > 0 && raw.expert_tokens == nullptr) ||
      (raw.expert_lost_count > 0 && raw.expert_lost == nullptr) ||
      (raw.memory_unit_count > 0 && raw.memory_units == nullptr) ||
      (raw.blob_count > 0 && raw.blobs == nullptr)) {
    return missing("units, fragments, metrics, expert_tokens, expert_lost, memory_units or blobs");
  }
  SnapshotOptions options;
  options.step = raw.step;
  options.attempt = raw.attempt;
  options.plan.units.assign(raw.units, raw.units + raw.unit_count);
  options.plan.fragments.reserve(raw.fragment_count);
  for (size_t i = 0; i < raw.fragment_count; ++i) {
    const ckpt_fragment& from = raw.fragments[i];
    options.plan.fragments.push_back({from.rank, {from.unit, from.offset, from.length}});
  }
  options.out_of_slabs =
      raw.out_of_slabs == CKPT_SLABS_SKIP ? fb::OutOfSlabs::Skip : fb::OutOfSlabs::Wait;
  for (size_t i = 0; i < raw.metric_count; ++i) {
    if (raw.metrics[i].name == nullptr) return missing("metric name");
    options.metrics.emplace_back(raw.metrics[i].name, raw.metrics[i].value);
  }
  CKPT_TRY(take_expert_tokens(raw, options));
  options.staleness_max = raw.staleness_max;
  options.no_wait = raw.no_wait != 0;
  options.streams = raw.streams != 0;
  options.plan_ns = raw.plan_ns;
  for (size_t i = 0; i < raw.blob_count; ++i) {
    const ckpt_blob& blob = raw.blobs[i];
    if (blob.name == nullptr) return missing("name of a blob");
    options.blobs.push_back({blob.name, blob.bytes, blob.is_global != 0});
  }
  options.memory_units.assign(raw.memory_units, raw.memory_units + raw.memory_unit_count);
  options.timeout_ms = or_default(raw.timeout_ms, kSlabsTimeoutMs);
  return options;
}

// Runs `body` on the snapshot. If the session was closed, there is no place for an error message.
template <typename Body>
ckpt_status run_snapshot(ckpt_snapshot* handle, Body&& body) {
  Session* session = handle->snapshot->session();
  if (session == nullptr) return CKPT_E_FAILED_PRECONDITION;
  return run_call(*session, [&] { return body(*handle->snapshot); });
}

Status write_pieces(Snapshot& target, const ckpt_write_options& raw) {
  if (raw.pieces == nullptr && raw.piece_count > 0) return missing("pieces");
  Clock::time_point check_at{};
  for (const ckpt_piece& piece : std::span(raw.pieces, raw.piece_count)) {
    if (const Clock::time_point now = Clock::now(); now >= check_at) {
      check_at = now + kInterruptEvery;
      if (target.session()->interrupted()) {
        return make_error(ErrorCode::kAborted, "writing {} pieces: interrupted", raw.piece_count);
      }
    }
    if (piece.data == nullptr && piece.length > 0) return missing("data of a piece");
    CKPT_TRY(target.write(piece.unit, piece.offset,
                          {static_cast<const std::byte*>(piece.data), piece.length}));
  }
  return ok_status();
}

}  // namespace
}  // namespace ckpt::lib

using namespace ckpt;       // NOLINT(google-build-using-namespace): this file is the ABI's other
using namespace ckpt::lib;  // NOLINT(google-build-using-namespace): side, nothing includes it

ckpt_status ckpt_snapshot_begin(ckpt_session* session, const ckpt_snapshot_options* options,
                                ckpt_snapshot** snapshot) {
  return run_call(*session->session, [&]() -> Status {
    if (options == nullptr || snapshot == nullptr) return missing("options or snapshot");
    *snapshot = nullptr;
    CKPT_ASSIGN(SnapshotOptions converted, snapshot_options(copy_options(options)));
    CKPT_ASSIGN(std::shared_ptr<Snapshot> begun,
                Snapshot::begin(*session->session, std::move(converted)));
    *snapshot = new ckpt_snapshot{std::move(begun)};
    return ok_status();
  });
}

ckpt_status ckpt_snapshot_write(ckpt_snapshot* snapshot, uint32_t unit, uint64_t offset,
                                const void* data, uint64_t length) {
  return run_snapshot(snapshot, [&](Snapshot& target) -> Status {
    if (data == nullptr && length > 0) return missing("data");
    return target.write(unit, offset, {static_cast<const std::byte*>(data), length});
  });
}

ckpt_status ckpt_snapshot_write_pieces(ckpt_snapshot* snapshot, const ckpt_write_options* options) {
  return run_snapshot(snapshot, [&](Snapshot& target) -> Status {
    if (options == nullptr) return missing("options");
    CKPT_TRY(check_size(options, sizeof(ckpt_write_options)));
    return write_pieces(target, copy_options(options));
  });
}

ckpt_status ckpt_snapshot_reserve(ckpt_snapshot* snapshot, uint32_t unit, uint64_t offset,
                                  uint64_t length, uint32_t timeout_ms, ckpt_place* place) {
  return run_snapshot(snapshot, [&](Snapshot& target) -> Status {
    if (place == nullptr) return missing("place");
    CKPT_ASSIGN(const Place lent, target.reserve(unit, offset, length, timeout_ms));
    *place = {lent.memory.data(), lent.memory.size(), lent.id};
    return ok_status();
  });
}

ckpt_status ckpt_snapshot_filled(ckpt_snapshot* snapshot, uint64_t place_id, uint32_t crc32c) {
  return run_snapshot(snapshot, [&](Snapshot& target) { return target.filled(place_id, crc32c); });
}

uint32_t ckpt_crc32c(const void* data, uint64_t length, uint32_t crc) {
  return base::crc32c({static_cast<const std::byte*>(data), length}, crc);
}

ckpt_status ckpt_snapshot_end(ckpt_snapshot* snapshot) {
  return run_snapshot(snapshot, [](Snapshot& target) { return target.end(); });
}

ckpt_status ckpt_snapshot_abort(ckpt_snapshot* snapshot, const char* reason) {
  return run_snapshot(snapshot, [&](Snapshot& target) -> Status {
    target.abort(reason != nullptr ? reason : "aborted by the trainer");
    return ok_status();
  });
}

ckpt_status ckpt_snapshot_query(const ckpt_snapshot* snapshot, ckpt_snapshot_info* info) {
  if (info == nullptr) return CKPT_E_INVALID_ARGUMENT;
  const Snapshot::Info& known = snapshot->snapshot->info();
  ckpt_snapshot_info out{};
  out.level = static_cast<ckpt_level>(known.level);
  out.failure = known.failure ? static_cast<ckpt_status>(known.failure->code) : CKPT_OK;
  out.detail = known.failure ? static_cast<int>(known.failure->detail) : CKPT_DETAIL_NONE;
  out.reason = known.failure ? known.failure->message.c_str() : nullptr;
  out.bytes = known.bytes;
  out.stall_ns = known.stall_ns;
  out.wait_ns = known.wait_ns;
  out.durable_ns = known.durable_ns;
  out.alarms = known.alarms.empty() ? nullptr : known.alarms.c_str();
  const SnapshotTimings& timings = known.timings;
  out.plan_ns = timings.plan_ns;
  out.begin_ns = timings.begin_ns;
  out.slab_wait_ns = timings.slab_wait_ns;
  out.copy_ns = timings.copy_ns;
  out.seal_ns = timings.seal_ns;
  out.write_ns = timings.write_ns;
  out.sync_ns = timings.sync_ns;
  out.journal_ns = timings.journal_ns;
  copy_out(out, info);
  return CKPT_OK;
}

ckpt_status ckpt_snapshot_wait(ckpt_snapshot* snapshot, ckpt_level level, uint32_t timeout_ms) {
  return run_snapshot(snapshot, [&](Snapshot& target) -> Status {
    if (level < CKPT_LEVEL_OPEN || level > CKPT_LEVEL_DURABLE) {
      return make_error(ErrorCode::kInvalidArgument, "level {} cannot be waited for",
                        static_cast<int>(level));
    }
    return target.wait(static_cast<fb::SnapshotLevel>(level), Deadline::after_ms(timeout_ms));
  });
}

void ckpt_snapshot_free(ckpt_snapshot* snapshot) {
  if (snapshot == nullptr) return;
  if (!snapshot->snapshot->ended()) {
    snapshot->snapshot->abort("the trainer gave the snapshot up before its end");
  }
  delete snapshot;
}
