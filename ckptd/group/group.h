// Groups: which ranks of a run train together, in which epoch, and from which view they start.
//
// Pure: events in, actions out. An epoch opens when ranks 0..size-1 have all joined and asked for
// the same resume point. Opening is two steps: the daemon settles or abandons every open snapshot
// of the run, then writes the epoch record (with the one resume point) to the journal; only when
// that is durable are the members told. A lost member ends the epoch: the others are told at once
// and join the next one. Losing the daemon is not a membership change: members rejoin theirs.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "formats/base/ids.h"
#include "formats/base/result.h"

namespace ckptd {

using ckpt::Result;
using ckpt::Status;

enum class ResumeMode : uint8_t { kStart = 0, kLatest = 1, kAtStep = 2, kContinue = 3 };

struct JoinRequest {
  ckpt::SessionId session = 0;
  uint64_t request = 0;
  ckpt::Rank rank = 0;
  uint32_t size = 0;
  ResumeMode resume = ResumeMode::kStart;
  ckpt::LineageId resume_lineage = 0;
  ckpt::Step resume_step = 0;
};

class Groups {
 public:
  // Everybody is there: settle snapshots, choose the resume point, write the record, then opened().
  struct OpenEpoch {
    ckpt::RunId run = 0;
    ckpt::Epoch epoch = 0;
    std::vector<JoinRequest> members;  // by rank
  };
  struct Refuse {  // answer these joins with the error
    std::vector<JoinRequest> members;
    ckpt::Error error;
  };
  struct EndEpoch {  // tell the remaining members
    ckpt::RunId run = 0;
    ckpt::Epoch epoch = 0;
    std::vector<ckpt::Rank> lost;
    std::vector<ckpt::SessionId> remaining;
    std::string reason;
  };
  struct KvAnswer {
    ckpt::SessionId session = 0;
    uint64_t request = 0;
    std::string key;
    std::vector<std::byte> value;
  };
  using Action = std::variant<OpenEpoch, Refuse, EndEpoch, KvAnswer>;
  using Actions = std::vector<Action>;

  Groups();
  ~Groups();

  // From the journal, at start: the run's last epoch, whose members may rejoin.
  void recovered(ckpt::RunId run, ckpt::Epoch epoch, uint32_t size, ckpt::LineageId lineage);

  Actions join(ckpt::RunId run, const JoinRequest& request);
  // The record is durable (or failed: everybody is refused with the error).
  Actions opened(ckpt::RunId run, ckpt::Epoch epoch, ckpt::LineageId lineage, const Status& status);
  Result<ckpt::LineageId> rejoin(ckpt::RunId run, ckpt::SessionId session, ckpt::Rank rank,
                                 ckpt::Epoch epoch);
  Actions leave(ckpt::SessionId session);  // in good order
  Actions lost(ckpt::SessionId session);   // died, or its connection did

  struct Member {
    ckpt::RunId run = 0;
    ckpt::Epoch epoch = 0;
    ckpt::Rank rank = 0;
    uint32_t size = 0;
    ckpt::LineageId lineage = 0;
  };
  std::optional<Member> member(ckpt::SessionId session) const;
  std::vector<ckpt::SessionId> members(ckpt::RunId run, ckpt::Epoch epoch) const;

  // Rendezvous of the current epoch.
  Actions kv_set(ckpt::SessionId session, ckpt::Epoch epoch, const std::string& key,
                 std::vector<std::byte> value);
  Actions kv_get(ckpt::SessionId session, uint64_t request, ckpt::Epoch epoch,
                 const std::string& key);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd
