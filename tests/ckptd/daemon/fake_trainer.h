// FakeTrainer: one rank of a training job, speaking the daemon's protocol without a socket, with a
// real memfd. Its state is a pure function of (unit, step, salt), so that every restored byte can
// be checked. Nothing here is shared with libckpt: the two agree on wire.fbs alone.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/arena.h"
#include "formats/blob.h"
#include "formats/plan.h"
#include "formats/wire/convert.h"
#include "formats/wire/protocol.h"
#include "formats/wire/snapshot_timings.h"
#include "tests/ckptd/daemon/world.h"

namespace ckptd::testing {

namespace fb = ckpt::fb;

// A model of a few units; the large one does not fit into one slab.
std::vector<ckpt::UnitSpec> small_model();

// Byte `offset` of the unit as of this step. `salt` tells futures of one step apart.
std::byte state_byte(ckpt::UnitId unit, ckpt::Step step, uint64_t salt, uint64_t offset);

// Every unit cut into `size` ranges, one for each rank.
ckpt::Plan even_plan(const std::vector<ckpt::UnitSpec>& units,
                     const std::vector<ckpt::UnitId>& which, uint32_t size);

class FakeTrainer {
 public:
  struct Options {
    std::string run = "tiny";
    uid_t uid = 54'321;
    uint64_t arena_bytes = 2ull << 20;
    uint64_t slab_bytes = 64ull << 10;
    fb::SessionKind kind = fb::SessionKind::Trainer;
    bool wait_for_arena = true;  // connect() returns once all slabs are faulted in
    fb::AlarmPolicy alarms = fb::AlarmPolicy::Default;
    bool elastic = false;  // survivors of its group continue without lost ranks
    uint32_t protocol = ckpt::wire::kProtocolVersion;
  };
  FakeTrainer(World& world, const Options& options);

  // -- connection ------------------------------------------------------------------------------
  // Connects, says hello, and maps the arena. False: refused, see error().
  bool connect();
  // Connects to a restarted daemon: hands the arena back, registers, rejoins its epoch, reopens its
  // snapshots. False if the epoch could not be rejoined.
  bool reconnect();
  void die() { world_.hang_up(session_, "its process died"); }
  ckpt::SessionId session() const { return session_; }

  // -- messages ----------------------------------------------------------------------------------
  template <typename BodyT>
  uint64_t send(BodyT body) {
    body.request = ++last_request_;
    post(std::move(body));
    return last_request_;
  }
  template <typename BodyT>
  void post(BodyT body) {
    fb::MessageT message;
    message.body.Set(std::move(body));
    world_.deliver(session_, std::move(message));
  }
  // Removes the first message of this type from the inbox.
  template <typename BodyT>
  std::optional<BodyT> take() {
    auto& messages = world_.inbox(session_).messages;
    for (auto message = messages.begin(); message != messages.end(); ++message) {
      const auto type = fb::MessageBodyTraits<typename BodyT::TableType>::enum_value;
      if (message->body.type != type) continue;
      BodyT body = *static_cast<BodyT*>(message->body.value);
      messages.erase(message);
      return body;
    }
    return std::nullopt;
  }
  // The oldest ErrorReply in the inbox, as text; empty if there is none.
  std::string error();

  // -- run and group
  // -------------------------------------------------------------------------------
  bool register_units(const std::vector<ckpt::UnitSpec>& units,
                      const std::vector<fb::UnitCodec>& codecs = {},
                      const std::vector<uint32_t>& flags = {});
  void join(ckpt::Rank rank, uint32_t size, fb::ResumeMode resume, ckpt::Step step = 0);
  // After world.run(): true if the epoch has started.
  bool started();
  const fb::EpochStartedT& epoch() const { return *epoch_; }

  // -- snapshots
  // -----------------------------------------------------------------------------------
  struct Snapshot {
    fb::BeginSnapshotT begin;
    ckpt::Rank rank = 0;
    uint64_t salt = 0;
    std::vector<uint32_t> slabs;       // leased, not sealed
    std::vector<fb::SealSlabT> seals;  // kept until the snapshot is durable
    fb::SnapshotLevel level = fb::SnapshotLevel::Open;
    std::string reason;
    std::string alarms;
    ckpt::SnapshotTimings timings;  // as ckptd told them
    bool sealed = false;
  };
  // Begins this rank's part of the plan.
  void begin(ckpt::Step step, const ckpt::Plan& plan, uint64_t salt = 0, uint32_t attempt = 0,
             fb::OutOfSlabs out_of_slabs = fb::OutOfSlabs::Wait);
  // Fills and seals the whole part. False if slabs are missing (run the world, call again).
  bool fill(ckpt::Step step);
  // Processes all messages about snapshots and the epoch.
  void listen();
  Snapshot& snapshot(ckpt::Step step) { return snapshots_.at(step); }
  bool has_snapshot(ckpt::Step step) const { return snapshots_.count(step) > 0; }
  std::map<ckpt::Step, Snapshot>& snapshots() { return snapshots_; }
  bool in_epoch() const { return epoch_.has_value() && !epoch_ended(); }
  bool epoch_ended() const { return epoch_ended_.has_value(); }
  const fb::EpochEndedT& ended() const { return *epoch_ended_; }

  // -- restore
  // -------------------------------------------------------------------------------------
  struct Restored {
    std::string error;
    std::vector<std::vector<std::byte>> bytes;  // one per want
    std::vector<ckpt::Step> steps;              // one per want: step of the version
    std::vector<std::string> notes;
    std::vector<bool> memory_only;  // no disk has the version
    uint64_t memory_pieces = 0;
    uint64_t segment_pieces = 0;
  };
  Restored restore(const fb::OpenRestoreT& request);

  // The blobs of a commit, or nothing: see error().
  std::optional<fb::BlobsListedT> list_blobs(const fb::ListBlobsT& request);
  // Wants for all bytes of the listed blobs, at the listed commit.
  fb::OpenRestoreT whole_blobs(const fb::BlobsListedT& listed) const;

  fb::QueryReplyT query(const std::string& verb, const std::string& args);

  ckpt::MutableByteView slab(uint32_t slab) { return arena_->slab(slab); }
  ckpt::base::UniqueFd& arena_fd() { return arena_fd_; }
  std::vector<ckpt::UnitSpec> units;

  // Fields of the snapshots that are begun from now on.
  std::vector<fb::ExpertTokens> expert_tokens;
  std::vector<fb::ExpertTokens> expert_lost;
  std::optional<double> plt;  // told with each snapshot
  uint64_t staleness_max = 0;
  std::vector<ckpt::BlobSpec> blobs;  // of this rank; their bytes come from byte_at, by their ids
  ckpt::SnapshotTimings timings;      // told with each seal; all zero: as older clients
  // Growth that each begin tells, with ids from first_grown on.
  std::vector<ckpt::UnitSpec> grown;
  ckpt::UnitId first_grown = 0;
  fb::UnitCodec grown_codec = fb::UnitCodec::Default;
  uint32_t grown_flags = 0;
  // The state of the trainer; tests replace it.
  std::function<std::byte(ckpt::UnitId, ckpt::Step, uint64_t salt, uint64_t offset)> byte_at =
      state_byte;

 private:
  bool greet(bool readopt);
  bool take_window(const fb::OpenRestoreT& request, uint64_t id, Restored& restored, bool* last);

  World& world_;
  const Options options_;
  ckpt::SessionId session_ = 0;
  uint64_t last_request_ = 0;
  ckpt::base::UniqueFd arena_fd_;
  std::optional<ckpt::ArenaMapping> arena_;
  std::optional<fb::EpochStartedT> epoch_;
  std::optional<fb::EpochEndedT> epoch_ended_;
  std::map<ckpt::Step, Snapshot> snapshots_;
};

}  // namespace ckptd::testing
