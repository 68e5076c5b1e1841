// Holds: the views that a session keeps from being removed (ckpt.h, "holds").
//
// A hold belongs to one connection. After a loss of the daemon the session asks the next one for
// each hold again, as soon as it is ready. Whether that worked is known at the next renew().
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

  // The reader is still at work. Takes the hold again if it has ended; an error says that this
  // cannot be done, and why the hold had ended.
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

  Session* session_;  // null: it was closed
  HoldOptions view_;  // once it is taken: exactly this one
  uint32_t lease_ms_ = 0;
  uint64_t id_ = 0;         // the daemon's; 0: nothing is held now
  uint64_t request_ = 0;    // that asks for it again, unanswered; 0: none
  bool asking_ = false;     // a call waits for the answer
  std::string end_reason_;  // why it is not held any more
  Clock::time_point renewed_{};
};

// All holds of a session. Each takes itself out when it is released.
class Holds {
 public:
  void add(Hold* hold) { holds_.push_back(hold); }
  void remove(Hold* hold) { std::erase(holds_, hold); }

  void session_is_ready(Session& session);  // to be asked for again
  void session_closes();
  // False: it is about no hold of this list.
  bool take_answer(const fb::CommitHeldT& answer);
  bool take_error(const fb::ErrorReplyT& error);
  void take_end(const fb::HoldEndedT& end);

 private:
  std::vector<Hold*> holds_;
};

}  // namespace ckpt::lib
