// Holds: leases of a session that protect views from removal (ckpt.h, "holds").
//
// A hold belongs to one connection. After a loss of the daemon the session requests each hold again
// from the next daemon, as soon as the session is ready. The next renew() tells whether that
// worked.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/src/deadline.h"
#include "formats/base/result.h"
#include "formats/unit.h"
#include "formats/wire/wire_generated.h"

namespace ckpt::lib {

class Session;

struct HoldOptions {
  std::string run;
  LineageId lineage = 0;
  Step step = 0;
  bool latest = false;
  std::string tag;
  bool newest = false;
};

class Hold {
 public:
  // kVersionMismatch: this daemon is too old to hold anything.
  static Result<std::unique_ptr<Hold>> take(Session& session, const HoldOptions& options,
                                            const Deadline& deadline);
  ~Hold();  // releases it
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  // Reports that the reader is still at work. Takes the hold again if it has ended. An error says
  // that this is impossible, and why the hold had ended.
  Status renew(const Deadline& deadline);

  LineageId lineage() const { return view_.lineage; }
  Step step() const { return view_.step; }
  uint32_t lease_ms() const { return lease_ms_; }

 private:
  friend class Holds;
  Hold(Session& session, HoldOptions view) : session_(&session), view_(std::move(view)) {}

  std::string what() const;
  fb::HoldCommitT question() const;
  Status ask(const Deadline& deadline);
  void take_answer(const fb::CommitHeldT& answer);

  Session* session_;  // null: the session was closed
  HoldOptions view_;  // after take(): exactly this view
  uint32_t lease_ms_ = 0;
  uint64_t id_ = 0;         // the daemon's; 0: nothing is held now
  uint64_t request_ = 0;    // unanswered request for the hold; 0: none
  bool asking_ = false;     // a call waits for the answer
  std::string end_reason_;  // why the hold ended
  Clock::time_point renewed_{};
};

// All holds of a session. A hold removes itself when it is released.
class Holds {
 public:
  void add(Hold* hold) { holds_.push_back(hold); }
  void remove(Hold* hold) { std::erase(holds_, hold); }

  void session_is_ready(Session& session);  // requests each hold again
  void session_closes();
  // False: the answer belongs to no hold of this list.
  bool take_answer(const fb::CommitHeldT& answer);
  bool take_error(const fb::ErrorReplyT& error);
  void take_end(const fb::HoldEndedT& end);

 private:
  std::vector<Hold*> holds_;
};

}  // namespace ckpt::lib
