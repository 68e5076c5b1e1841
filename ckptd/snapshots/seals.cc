#include "ckptd/snapshots/seals.h"

#include <utility>

#include "ckptd/snapshots/alarm_check.h"
#include "formats/wire/snapshot_timings.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::SnapshotKey;

// Takes ownership of the slab. Only a slab that was leased for this snapshot may be sealed
// into it. In an adopted arena a seal is also a claim: of any slab that no snapshot has
// claimed yet.
Result<StagedSlab> Seals::take_over(const Session& session, const SnapshotKey& key,
                                    const fb::SealSlabT& message) {
  Staging& staging = core_.needs.staging;
  OpenSnapshotState::Share& share = core_.open.at(key).shares[session.id];
  if (!share.leased.contains(message.slab)) {
    if (!session.handing_back) {
      return make_error(ErrorCode::kFailedPrecondition, "slab {} is not leased for this snapshot",
                        message.slab);
    }
    CKPT_TRY(staging.claim_leased(*session.arena, message.slab));
    share.leased.insert(message.slab);
    ++share.held;
  }
  std::vector<ckpt::ExtentFragment> fragments;
  fragments.reserve(message.fragments.size());
  for (const fb::SealedFragment& fragment : message.fragments) {
    fragments.push_back({.unit = fragment.unit(),
                         .codec = 0,
                         .offset = fragment.offset(),
                         .length = fragment.length(),
                         .payload_offset = fragment.payload_offset(),
                         .crc32c = fragment.crc32c()});
  }
  auto staged =
      staging.seal(*session.arena, message.slab, message.payload_bytes, std::move(fragments));
  if (staged.ok()) share.leased.erase(message.slab);
  return staged;
}

void Seals::seal(Session& session, const fb::SealSlabT& message) {
  const SnapshotNeeds& needs = core_.needs;
  const auto key = checks_.member_key(session, message.epoch, message.step, message.attempt);
  if (!key.ok()) return needs.replies.refuse(session.id, message.request, key.error());
  if (!core_.ingest.is_open(*key) || !core_.open.contains(*key)) {
    // The end of the snapshot freed its slab; a slab of an adopted arena is freed later.
    const auto failure = core_.ingest.failure(*key);
    return needs.replies.refuse(session.id, message.request,
                                failure ? *failure
                                        : make_error(ErrorCode::kFailedPrecondition,
                                                     "run {} step {}: no such open snapshot",
                                                     session.run_name, message.step));
  }
  auto staged = take_over(session, *key, message);
  if (!staged.ok()) {
    const Error error = make_error(staged.error().code, "rank {}: {}",
                                   needs.member(session.id)->rank, staged.error().message);
    needs.replies.refuse(session.id, message.request, error);
    return core_.execute(core_.ingest.abort(*key, error));
  }
  const ckpt::Rank rank = needs.member(session.id)->rank;
  core_.open.at(*key).timer.member_reported(ckpt::wire::from_fb(message.timings));
  const Ingest::Outcome outcome = core_.ingest.sealed(*key, rank, staged->fragments());
  if (!outcome.status.ok()) {
    needs.replies.refuse(session.id, message.request, outcome.status.error());
    return core_.execute(outcome.actions);
  }
  core_.open.at(*key).late_rank.sealed(rank, needs.turn.now());
  keep_or_write(session.id, *key, rank, std::move(staged).value(), outcome.memory_only);
  core_.execute(outcome.actions);
}

// Bytes that may already be on disk are compared first.
void Seals::keep_or_write(ckpt::SessionId session, const SnapshotKey& key, ckpt::Rank rank,
                          StagedSlab slab, bool memory_only) {
  if (memory_only) return keep(key, std::move(slab));
  OpenSnapshotState& open = core_.open.at(key);
  for (const ckpt::ExtentFragment& fragment : slab.fragments()) open.bytes += fragment.length;
  const std::vector<DedupCandidate> candidates = dedup_.find(key, open, slab);
  newest_.forget_if_ended(key);
  if (candidates.empty()) return write(session, key, rank, std::move(slab), {});
  dedup_.compare(
      key, open, std::move(slab), candidates,
      [this, session, key, rank, candidates](StagedSlab compared, const std::vector<bool>& same) {
        const auto left_out = dedup_.share(key, core_.open.at(key), compared, candidates, same);
        write(session, key, rank, std::move(compared), left_out);
      });
}

// Bytes are checked in both cases, and their floats scanned.
void Seals::keep(const SnapshotKey& key, StagedSlab slab) {
  const OpenSnapshotState& open = core_.open.at(key);
  const auto scan = std::make_shared<NotFiniteScan>(open.units);
  PayloadObserver observer = AlarmCheck::observe_floats(open, scan);
  const auto on_checked = [this, key, scan](const Status& checked) {
    if (checked.ok()) core_.open.at(key).scans.push_back(scan);
    core_.execute(core_.ingest.written(key, checked));
  };
  core_.needs.persist.keep(key, std::move(slab), on_checked, std::move(observer));
}

void Seals::write(ckpt::SessionId session, const SnapshotKey& key, ckpt::Rank rank, StagedSlab slab,
                  const std::vector<bool>& left_out) {
  OpenSnapshotState& open = core_.open.at(key);
  const auto scan = std::make_shared<NotFiniteScan>(open.units);
  PayloadObserver observer = AlarmCheck::observe_floats(open, scan);
  const auto sharer = open.shares.find(session);
  std::shared_ptr<BaseSource> bases = deltas_.find_bases(key, open, slab, left_out);
  newest_.forget_if_ended(key);
  const bool streams = sharer != open.shares.end() && sharer->second.streams;
  const auto on_written = [this, session, streams, key, scan](Result<WrittenExtent> written) {
    if (!written.ok()) return core_.execute(core_.ingest.written(key, written.error()));
    OpenSnapshotState& ours = core_.open.at(key);
    const auto share = ours.shares.find(session);
    if (streams && share != ours.shares.end()) --share->second.held;
    if (!written->fragments.empty()) ours.extents.push_back(std::move(written).value());
    ours.scans.push_back(scan);
    core_.execute(core_.ingest.written(key, {}));
  };
  core_.needs.persist.write(key, rank, std::move(slab), on_written, std::move(observer),
                            streams ? Persist::Afterwards::kFree : Persist::Afterwards::kHold,
                            open.encode_plan, left_out, std::move(bases));
}

}  // namespace ckptd
