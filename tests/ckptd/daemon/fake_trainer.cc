#include "tests/ckptd/daemon/fake_trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "formats/base/checked.h"
#include "formats/base/crc32c.h"
#include "formats/wire/frame.h"

namespace ckptd::testing {

namespace {

// Part of a declared range, at most a slab long, with its place in the payload of a slab.
struct Piece {
  ckpt::UnitRange range;
  uint64_t payload_offset = 0;
};

// Packs ranges into slabs, one slab after the other. Large pieces start at a block boundary.
std::vector<std::vector<Piece>> pack(const std::vector<fb::Range>& ranges, uint64_t slab_bytes) {
  std::vector<std::vector<Piece>> slabs;
  uint64_t filled = slab_bytes;
  for (const fb::Range& range : ranges) {
    for (uint64_t done = 0; done < range.length();) {
      uint64_t place = ckpt::base::align_up(filled, 8);
      const uint64_t left = range.length() - done;
      if (left >= ckpt::kAlignedFragmentBytes) {
        place = ckpt::base::align_up(filled, ckpt::kBlockBytes);
      }
      if (place >= slab_bytes) {
        slabs.emplace_back();
        place = 0;
      }
      const uint64_t length = std::min(left, slab_bytes - place);
      slabs.back().push_back({{range.unit(), range.offset() + done, length}, place});
      filled = place + length;
      done += length;
    }
  }
  return slabs;
}

// Packs durable units and blobs, and memory-only units, into separate slabs.
std::vector<std::vector<Piece>> packed_slabs(const fb::BeginSnapshotT& begin, ckpt::Rank rank,
                                             uint64_t slab_bytes) {
  std::vector<fb::Range> written;
  std::vector<fb::Range> kept;
  for (const fb::Range& range : begin.fragments) {
    const auto& memory = begin.memory_units;
    const bool stays = std::find(memory.begin(), memory.end(), range.unit()) != memory.end();
    (stays ? kept : written).push_back(range);
  }
  for (size_t i = 0; i < begin.blobs.size(); ++i) {
    written.emplace_back(ckpt::blob_id(rank, i), 0, 0, begin.blobs[i]->bytes);
  }
  auto slabs = pack(written, slab_bytes);
  for (auto& slab : pack(kept, slab_bytes)) slabs.push_back(std::move(slab));
  return slabs;
}

}  // namespace

std::vector<ckpt::UnitSpec> small_model() {
  std::vector<ckpt::UnitSpec> units(4);
  units[0].name = "trainer";
  units[0].bytes = 1'000;
  for (ckpt::UnitId expert = 0; expert < 3; ++expert) {
    ckpt::UnitSpec& unit = units[expert + 1];
    unit.name = fmt::format("layers.0.experts.{}.weights", expert);
    unit.layer = 0;
    unit.expert = expert;
    unit.part = ckpt::UnitPart::kWeights;
    unit.bytes = 20'000 + 90'000 * expert;
  }
  return units;
}

std::byte state_byte(ckpt::UnitId unit, ckpt::Step step, uint64_t salt, uint64_t offset) {
  // Mixed before the last product, so that no two snapshots differ by the same bits everywhere.
  uint64_t mixed = (step << 40 ^ salt << 16 ^ unit) + (offset / 64 + 1) * 0x9e3779b97f4a7c15ull;
  mixed = (mixed ^ mixed >> 31) * 0xbf58476d1ce4e5b9ull;
  return static_cast<std::byte>((mixed >> 56) + offset);
}

ckpt::Plan even_plan(const std::vector<ckpt::UnitSpec>& units,
                     const std::vector<ckpt::UnitId>& which, uint32_t size) {
  ckpt::Plan plan{.units = which, .fragments = {}};
  for (const ckpt::UnitId unit : which) {
    const uint64_t bytes = units[unit].bytes;
    for (ckpt::Rank rank = 0; rank < size; ++rank) {
      const uint64_t begin = bytes * rank / size;
      const uint64_t end = bytes * (rank + 1) / size;
      if (begin < end) plan.fragments.push_back({rank, {unit, begin, end - begin}});
    }
  }
  return plan;
}

FakeTrainer::FakeTrainer(World& world, const Options& options) : world_(world), options_(options) {}

bool FakeTrainer::greet(bool readopt) {
  session_ = world_.connect(options_.uid);
  fb::HelloT hello;
  hello.protocol_version = options_.protocol;
  hello.client = "fake";
  hello.kind = options_.kind;
  hello.run = options_.run;
  hello.arena_bytes = options_.arena_bytes;
  hello.slab_bytes = options_.slab_bytes;
  hello.readopt = readopt;
  hello.alarms = options_.alarms;
  if (readopt) hello.arena_bytes = arena_->layout().arena_bytes();
  fb::MessageT message;
  message.body.Set(std::move(hello));
  world_.deliver(session_, std::move(message),
                 readopt ? ckpt::base::UniqueFd(::dup(arena_fd_.get())) : ckpt::base::UniqueFd());
  if (options_.wait_for_arena) world_.run();
  const auto welcome = take<fb::WelcomeT>();
  if (!welcome) return false;
  if (welcome->adopted || options_.arena_bytes == 0) return true;
  arena_fd_ = std::move(world_.inbox(session_).arena);
  auto mapped = ckpt::ArenaMapping::map(
      arena_fd_.get(), {.slab_bytes = welcome->slab_bytes, .slab_count = welcome->slab_count});
  if (!mapped.ok()) return false;
  arena_.emplace(std::move(mapped).value());
  return true;
}

bool FakeTrainer::connect() { return greet(false); }

bool FakeTrainer::reconnect() {
  EXPECT_TRUE(greet(true));
  if (!register_units(units) || !epoch_) return false;
  fb::RejoinEpochT rejoin;
  rejoin.rank = epoch_->rank;
  rejoin.epoch = epoch_->epoch;
  send(std::move(rejoin));
  world_.run();
  if (!take<fb::DoneT>()) return false;
  for (auto& [step, snapshot] : snapshots_) {
    if (snapshot.level >= fb::SnapshotLevel::Durable) continue;
    fb::ReopenSnapshotT reopen;
    reopen.begin = std::make_unique<fb::BeginSnapshotT>(snapshot.begin);
    reopen.begin->slabs_wanted = 0;
    reopen.leased = snapshot.slabs;
    send(std::move(reopen));
    for (const fb::SealSlabT& seal : snapshot.seals) send(seal);
  }
  return true;
}

std::string FakeTrainer::error() {
  const auto reply = take<fb::ErrorReplyT>();
  return reply ? reply->message : std::string();
}

bool FakeTrainer::register_units(const std::vector<ckpt::UnitSpec>& list,
                                 const std::vector<fb::UnitCodec>& codecs,
                                 const std::vector<uint32_t>& flags) {
  units = list;
  fb::RegisterUnitsT body;
  body.codecs = codecs;
  body.flags = flags;
  for (ckpt::UnitId id = 0; id < list.size(); ++id) {
    body.units.push_back(std::make_unique<fb::UnitT>(ckpt::wire::to_fb(list[id], id)));
  }
  send(std::move(body));
  world_.run();
  return take<fb::DoneT>().has_value();
}

void FakeTrainer::join(ckpt::Rank rank, uint32_t size, fb::ResumeMode resume, ckpt::Step step) {
  fb::JoinGroupT body;
  body.rank = rank;
  body.size = size;
  body.resume = resume;
  body.resume_step = step;
  body.elastic = options_.elastic;
  body.member = rank;
  send(std::move(body));
}

bool FakeTrainer::started() {
  auto started = take<fb::EpochStartedT>();
  if (!started) return false;
  epoch_ = std::move(started);
  epoch_ended_.reset();
  if (!epoch_->goes_on) snapshots_.clear();  // staged snapshots may still be in flight otherwise
  return true;
}

void FakeTrainer::begin(ckpt::Step step, const ckpt::Plan& plan, uint64_t salt, uint32_t attempt,
                        fb::OutOfSlabs out_of_slabs) {
  Snapshot& snapshot = snapshots_[step];
  snapshot = Snapshot();
  snapshot.salt = salt;
  fb::BeginSnapshotT& body = snapshot.begin;
  body.epoch = epoch_->epoch;
  body.step = step;
  body.attempt = attempt;
  body.plan = ckpt::wire::to_fb(plan_hash(plan));
  body.units = plan.units;
  for (const ckpt::PlannedFragment& fragment : plan.fragments) {
    if (fragment.rank != epoch_->rank) continue;
    body.fragments.emplace_back(fragment.range.unit, 0, fragment.range.offset,
                                fragment.range.length);
  }
  body.memory_units = plan.memory_units;
  for (const ckpt::BlobSpec& blob : blobs) {
    body.blobs.push_back(std::make_unique<fb::BlobDeclaredT>());
    body.blobs.back()->name = blob.name;
    body.blobs.back()->bytes = blob.bytes;
    body.blobs.back()->global = blob.global;
  }
  for (const ckpt::UnitSpec& unit : grown) {
    const auto id = static_cast<ckpt::UnitId>(first_grown + body.grown.size());
    body.grown.push_back(std::make_unique<fb::GrownUnitT>());
    body.grown.back()->unit = std::make_unique<fb::UnitT>(ckpt::wire::to_fb(unit, id));
    body.grown.back()->codec = grown_codec;
    body.grown.back()->flags = grown_flags;
  }
  snapshot.rank = epoch_->rank;
  body.slabs_wanted =
      static_cast<uint32_t>(packed_slabs(body, snapshot.rank, arena_->layout().slab_bytes).size());
  body.out_of_slabs = out_of_slabs;
  auto metric = std::make_unique<fb::MetricT>();
  metric->name = "loss";
  metric->value = 1.0 / static_cast<double>(step + 1);
  body.metrics.push_back(std::move(metric));
  if (plt) {
    auto lost = std::make_unique<fb::MetricT>();
    lost->name = "plt";
    lost->value = *plt;
    body.metrics.push_back(std::move(lost));
  }
  body.expert_tokens = expert_tokens;
  body.expert_lost = expert_lost;
  body.staleness_max = staleness_max;
  send(body);
}

bool FakeTrainer::fill(ckpt::Step step) {
  listen();
  Snapshot& snapshot = snapshots_.at(step);
  const auto packed = packed_slabs(snapshot.begin, snapshot.rank, arena_->layout().slab_bytes);
  while (snapshot.seals.size() < packed.size()) {
    if (snapshot.slabs.empty()) return false;
    const std::vector<Piece>& pieces = packed[snapshot.seals.size()];
    fb::SealSlabT seal;
    seal.epoch = snapshot.begin.epoch;
    seal.step = step;
    seal.attempt = snapshot.begin.attempt;
    seal.slab = snapshot.slabs.front();
    snapshot.slabs.erase(snapshot.slabs.begin());
    const ckpt::MutableByteView memory = arena_->slab(seal.slab);
    std::memset(memory.data(), 0, memory.size());
    for (const Piece& piece : pieces) {
      const auto [unit, offset, length] = piece.range;
      for (uint64_t i = 0; i < length; ++i) {
        memory[piece.payload_offset + i] = byte_at(unit, step, snapshot.salt, offset + i);
      }
      const uint32_t crc = ckpt::base::crc32c(memory.subspan(piece.payload_offset, length));
      seal.fragments.emplace_back(unit, crc, offset, length, piece.payload_offset);
      seal.payload_bytes = piece.payload_offset + length;
    }
    seal.timings = ckpt::wire::to_fb(timings);
    snapshot.seals.push_back(seal);
    send(seal);
  }
  snapshot.sealed = true;
  return true;
}

void FakeTrainer::listen() {
  while (const auto leased = take<fb::SlabsLeasedT>()) {
    const auto snapshot = snapshots_.find(leased->step);
    if (snapshot == snapshots_.end()) continue;
    auto& slabs = snapshot->second.slabs;
    slabs.insert(slabs.end(), leased->slabs.begin(), leased->slabs.end());
  }
  while (const auto state = take<fb::SnapshotStateT>()) {
    const auto snapshot = snapshots_.find(state->step);
    if (snapshot == snapshots_.end() || snapshot->second.begin.epoch != state->epoch ||
        snapshot->second.begin.attempt != state->attempt) {
      continue;
    }
    EXPECT_GE(state->level, snapshot->second.level) << "levels only rise";
    snapshot->second.level = state->level;
    snapshot->second.alarms = state->alarms;
    snapshot->second.reason = state->reason;
    snapshot->second.timings = ckpt::wire::from_fb(state->timings);
  }
  if (auto ended = take<fb::EpochEndedT>()) epoch_ended_ = std::move(ended);
}

bool FakeTrainer::take_window(const fb::OpenRestoreT& request, uint64_t id, Restored& restored,
                              bool* last) {
  const auto window = take<fb::RestoreWindowT>();
  if (!window) return false;
  EXPECT_EQ(window->restore, id);
  for (const auto& note : window->notes) {
    restored.steps[note->want] = note->version_step;
    restored.notes[note->want] = note->note;
    restored.memory_only[note->want] = note->memory_only;
  }
  for (const fb::RestoredPiece& piece : window->pieces) {
    const ckpt::ByteView from =
        arena_->slab(window->slab).subspan(piece.slab_offset(), piece.length());
    EXPECT_EQ(ckpt::base::crc32c(from), piece.crc32c());
    const uint64_t at = piece.offset() - request.wants[piece.want()].offset();
    std::copy(from.begin(), from.end(),
              restored.bytes[piece.want()].begin() + static_cast<ptrdiff_t>(at));
    ++(piece.source() == 0 ? restored.memory_pieces : restored.segment_pieces);
  }
  if (!window->pieces.empty()) {
    fb::ReleaseWindowT release;
    release.restore = id;
    release.slab = window->slab;
    post(std::move(release));
  }
  *last = window->last;
  return true;
}

FakeTrainer::Restored FakeTrainer::restore(const fb::OpenRestoreT& request) {
  Restored restored;
  for (const fb::Range& want : request.wants) restored.bytes.emplace_back(want.length());
  send(request);
  world_.run();
  const auto opened = take<fb::RestoreOpenedT>();
  if (!opened) {
    restored.error = error();
    return restored;
  }
  for (const auto& unit : opened->units) {
    restored.steps.push_back(unit->version_step);
    restored.memory_only.push_back(unit->memory_only);
    restored.notes.push_back(unit->note);
  }
  for (bool last = request.wants.empty(); !last;) {
    if (!take_window(request, opened->restore, restored, &last)) {
      restored.error = error();
      if (restored.error.empty()) restored.error = "no window came";
      break;
    }
    world_.run();
  }
  fb::CloseRestoreT close;
  close.restore = opened->restore;
  send(std::move(close));
  world_.run();
  EXPECT_TRUE(take<fb::DoneT>().has_value());
  return restored;
}

std::optional<fb::BlobsListedT> FakeTrainer::list_blobs(const fb::ListBlobsT& request) {
  send(request);
  world_.run();
  return take<fb::BlobsListedT>();
}

fb::OpenRestoreT FakeTrainer::whole_blobs(const fb::BlobsListedT& listed) const {
  fb::OpenRestoreT request;
  request.run = options_.run;
  request.lineage = listed.lineage;
  request.step = listed.step;
  for (const auto& blob : listed.blobs) {
    request.wants.emplace_back(blob->id, 0, 0, blob->bytes);
  }
  return request;
}

fb::QueryReplyT FakeTrainer::query(const std::string& verb, const std::string& args) {
  fb::QueryT body;
  body.verb = verb;
  body.args = args;
  send(std::move(body));
  world_.run();
  auto reply = take<fb::QueryReplyT>();
  EXPECT_TRUE(reply.has_value()) << verb;
  return reply.value_or(fb::QueryReplyT());
}

}  // namespace ckptd::testing
