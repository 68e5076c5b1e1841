// Snapshots and holds of client.hpp, and conversions to and from the C ABI. Include client.hpp.
#ifndef CKPT_CLIENT_HANDLES_HPP_
#define CKPT_CLIENT_HANDLES_HPP_

#include <ckpt/ckpt.h>
#include <ckpt/ckpt_blobs.h>
#include <ckpt/ckpt_hold.h>
#include <ckpt/ckpt_pieces.h>

#include <ckpt/client_types.hpp>
#include <ckpt/outcome.hpp>
#include <memory>
#include <string>
#include <vector>

namespace ckpt::client {

// ---- conversions to and from the C ABI ---------------------------------------------------------

namespace detail {

inline Error error_of(const ckpt_session* session, ckpt_status status) {
  return {status, ckpt_session_error(session), ckpt_session_error_detail(session)};
}

inline const char* or_null(const std::string& text) {
  return text.empty() ? nullptr : text.c_str();
}

// Units in the form of the C ABI. Points into the list that it was made of.
class RawUnits {
 public:
  explicit RawUnits(const std::vector<UnitInfo>& from) : tensors_(from.size()) {
    for (size_t i = 0; i < from.size(); ++i) {
      const UnitInfo& unit = from[i];
      tensors_[i].reserve(unit.tensors.size());
      for (const TensorInfo& tensor : unit.tensors) {
        tensors_[i].push_back({tensor.name.c_str(), tensor.dtype.c_str(), tensor.shape.data(),
                               tensor.shape.size(), tensor.offset});
      }
      units.push_back({unit.name.c_str(), unit.layer, unit.expert, or_null(unit.part), unit.bytes,
                       tensors_[i].data(), tensors_[i].size()});
      codecs.push_back(unit.codec);
      flags.push_back(unit.flags);
    }
  }
  RawUnits(const RawUnits&) = delete;
  RawUnits& operator=(const RawUnits&) = delete;

  std::vector<ckpt_unit> units;
  std::vector<ckpt_codec> codecs;
  std::vector<uint32_t> flags;

 private:
  std::vector<std::vector<ckpt_tensor>> tensors_;
};

// The result points into `options`.
inline ckpt_restore_options raw_options(const RestoreOptions& options) {
  ckpt_restore_options raw{};
  raw.struct_size = sizeof raw;
  raw.run = or_null(options.run);
  raw.lineage = options.lineage;
  raw.step = options.step;
  raw.latest = options.latest ? 1 : 0;
  raw.tag = or_null(options.tag);
  raw.exact = options.exact ? 1 : 0;
  raw.timeout_ms = options.timeout_ms;
  raw.newest = options.newest ? 1 : 0;
  raw.memory = options.memory ? 1 : 0;
  raw.restored_size = sizeof(ckpt_restored);
  raw.direct = options.direct;
  return raw;
}

inline std::vector<Restored> from_raw(const std::vector<ckpt_restored>& answers) {
  std::vector<Restored> restored;
  restored.reserve(answers.size());
  for (const ckpt_restored& answer : answers) {
    restored.push_back({{answer.version_lineage, answer.version_step},
                        answer.note != nullptr ? answer.note : "",
                        answer.bytes_memory,
                        answer.bytes_disk,
                        answer.level});
  }
  return restored;
}

}  // namespace detail

// ---- handles -----------------------------------------------------------------------------------
using Place = ckpt_place;
using Piece = ckpt_piece;

// One snapshot of one rank. The destructor frees the handle: an ended snapshot continues, any other
// is aborted. Must not outlive its Session.
class Snapshot {
 public:
  Outcome<void> write(uint32_t unit, uint64_t offset, const void* data, uint64_t length) {
    return check(ckpt_snapshot_write(handle_.get(), unit, offset, data, length));
  }
  Outcome<void> write_pieces(const std::vector<Piece>& pieces) {
    ckpt_write_options raw{};
    raw.struct_size = sizeof raw;
    raw.pieces = pieces.data();
    raw.piece_count = pieces.size();
    return check(ckpt_snapshot_write_pieces(handle_.get(), &raw));
  }
  // The next bytes of a declared blob.
  Outcome<void> write_blob(const std::string& name, const void* data, uint64_t length,
                           bool global = false) {
    ckpt_blob_write_options raw{};
    raw.struct_size = sizeof raw;
    raw.name = name.c_str();
    raw.is_global = global ? 1 : 0;
    raw.data = data;
    raw.length = length;
    return check(ckpt_blob_write(handle_.get(), &raw));
  }
  Outcome<Place> reserve(uint32_t unit, uint64_t offset, uint64_t length, uint32_t timeout_ms = 0) {
    ckpt_place place{};
    const ckpt_status status =
        ckpt_snapshot_reserve(handle_.get(), unit, offset, length, timeout_ms, &place);
    if (status != CKPT_OK) return detail::error_of(session_, status);
    return place;
  }
  Outcome<void> filled(uint64_t place_id, uint32_t crc32c) {
    return check(ckpt_snapshot_filled(handle_.get(), place_id, crc32c));
  }
  Outcome<void> end() { return check(ckpt_snapshot_end(handle_.get())); }
  Outcome<void> abort(const std::string& reason) {
    return check(ckpt_snapshot_abort(handle_.get(), reason.c_str()));
  }
  Outcome<void> wait(ckpt_level level, uint32_t timeout_ms) {
    return check(ckpt_snapshot_wait(handle_.get(), level, timeout_ms));
  }
  // Does not read the socket: call Session::poll first.
  SnapshotInfo info() const {
    ckpt_snapshot_info raw{};
    raw.struct_size = sizeof raw;
    SnapshotInfo info;
    if (ckpt_snapshot_query(handle_.get(), &raw) != CKPT_OK) return info;
    info.level = raw.level;
    info.failure = raw.failure;
    info.detail = raw.detail;
    info.reason = raw.reason != nullptr ? raw.reason : "";
    info.bytes = raw.bytes;
    info.stall_ns = raw.stall_ns;
    info.wait_ns = raw.wait_ns;
    info.durable_ns = raw.durable_ns;
    info.alarms = raw.alarms != nullptr ? raw.alarms : "";
    info.timings = {raw.plan_ns, raw.begin_ns, raw.slab_wait_ns, raw.copy_ns,
                    raw.seal_ns, raw.write_ns, raw.sync_ns,      raw.journal_ns};
    return info;
  }

  // For the C ABI, and for libckpt_cuda.
  ckpt_snapshot* handle() const { return handle_.get(); }

 private:
  friend class Session;
  struct Free {
    void operator()(ckpt_snapshot* snapshot) const { ckpt_snapshot_free(snapshot); }
  };
  Snapshot(ckpt_session* session, ckpt_snapshot* handle) : session_(session), handle_(handle) {}
  Outcome<void> check(ckpt_status status) const {
    if (status == CKPT_OK) return {};
    return detail::error_of(session_, status);
  }
  ckpt_session* session_;
  std::unique_ptr<ckpt_snapshot, Free> handle_;
};

// Keeps a view while a reader restores it in parts. The destructor releases the view. Must not
// outlive its Session.
class Hold {
 public:
  ViewPoint view() const {
    ckpt_hold_info info{};
    info.struct_size = sizeof info;
    if (ckpt_hold_query(handle_.get(), &info) != CKPT_OK) return {};
    return {info.lineage, info.step};
  }
  Outcome<void> renew(uint32_t timeout_ms = 10'000) {
    const ckpt_status status = ckpt_hold_renew(handle_.get(), timeout_ms);
    if (status == CKPT_OK) return {};
    return detail::error_of(session_, status);
  }

 private:
  friend class Session;
  struct Release {
    void operator()(ckpt_hold* hold) const { ckpt_hold_release(hold); }
  };
  Hold(ckpt_session* session, ckpt_hold* handle) : session_(session), handle_(handle) {}
  ckpt_session* session_;
  std::unique_ptr<ckpt_hold, Release> handle_;
};

}  // namespace ckpt::client

#endif  // CKPT_CLIENT_HANDLES_HPP_
