// Group: this rank's epoch, and the keys that it has set there.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "client/src/deadline.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "formats/wire/wire_generated.h"

namespace ckpt::lib {

class Session;

// Holds state only; the session reports events. Keys set by this rank are kept because a restarted
// daemon has lost them: they are set again after a reconnect.
class Group {
 public:
  // `job`: the job under which this process joined (JoinGroup.job).
  void start(const fb::EpochStartedT& epoch, uint64_t job);
  void end(Epoch epoch, std::vector<Rank> lost, std::string reason);
  void leave() { joined_ = false; }
  void joiners_waiting(Epoch epoch, uint32_t count) { joiners_ = {epoch, count}; }

  bool joined() const { return joined_; }
  bool ended() const { return joined_ && ended_epoch_ == epoch_.epoch; }
  // True if joined and the epoch has not ended.
  bool alive() const { return joined_ && !ended(); }
  // kFailedPrecondition before the first join, kAborted with the lost ranks after the epoch's end.
  Status check_alive(std::string_view run) const;

  const fb::EpochStartedT& epoch() const { return epoch_; }
  uint64_t job() const { return job_; }
  const std::vector<Rank>& lost() const { return lost_; }
  // Number of processes that wait to join the elastic group.
  uint32_t joiners() const {
    return alive() && joiners_.first == epoch_.epoch ? joiners_.second : 0;
  }
  std::map<std::string, std::vector<uint8_t>>& own_keys() { return own_keys_; }

 private:
  bool joined_ = false;
  fb::EpochStartedT epoch_;
  uint64_t job_ = 0;
  // The last epoch that ended. Separate from epoch_: one read may bring both the start and the end
  // of an epoch, before the joining call has seen its answer.
  Epoch ended_epoch_ = 0;
  std::vector<Rank> lost_;
  std::string reason_;
  std::pair<Epoch, uint32_t> joiners_{0, 0};
  std::map<std::string, std::vector<uint8_t>> own_keys_;
};

struct JoinOptions {
  Rank rank = 0;
  uint32_t size = 0;
  fb::ResumeMode resume = fb::ResumeMode::Start;
  LineageId resume_lineage = 0;
  Step resume_step = 0;
  bool elastic = false;
  uint64_t member = 0;
  uint32_t grace_ms = 0;
  uint64_t job = 0;
  uint32_t timeout_ms = 0;
  // Called from within join_group() once the join has waited for a second, and when the reason
  // changes: who holds the rank's place, or which ranks are missing. May be empty.
  std::function<void(const std::string& why)> waiting;
};

Status join_group(Session& session, const JoinOptions& options);
Status leave_group(Session& session, const Deadline& deadline);
Status kv_set(Session& session, const std::string& key, std::vector<uint8_t> value);
Result<std::vector<uint8_t>> kv_get(Session& session, const std::string& key,
                                    const Deadline& deadline);

}  // namespace ckpt::lib
