// ChangeQueue: changes of history in the order of their requests. One at a time: each sees the
// result of the one before, and an acknowledged change is never undone by an earlier decision.
//
// A change begins when the one before has ended and the catalog has all durable records. It ends
// with its answer. Waiting changes are in memory only: after a restart clients ask again. Changes
// of disconnected sessions are dropped. Loop thread only; shutdown drains the queue.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ckptd/administration/change.h"
#include "ckptd/history/history.h"
#include "ckptd/history/run_gate.h"
#include "ckptd/loop/turn.h"
#include "ckptd/query/query.h"
#include "ckptd/sessions/replies.h"
#include "ckptd/sessions/session.h"

namespace ckptd {

class ChangeQueue {
 public:
  struct Needs {
    History& history;
    Turn& turn;
    Sessions& sessions;
    const Replies& replies;
    RunGate& gate;
    // Executes a change with a verb: calls answer() exactly once, now or later.
    std::function<void(const Session&, const RequestedChange&)> execute;
    // Executes a registration. If it replaces a run, it holds the administration's token until the
    // end.
    std::function<void(Session&, const ckpt::fb::RegisterUnitsT&)> register_replacing;
  };
  explicit ChangeQueue(Needs needs) : needs_(std::move(needs)) {}
  ChangeQueue(const ChangeQueue&) = delete;
  ChangeQueue& operator=(const ChangeQueue&) = delete;

  // A full queue answers with an error.
  void add(const Session& session, const ckpt::fb::QueryT& message);
  // kResourceExhausted: the queue is full, or has a registration of the session. Each holds a
  // message.
  Status add_registration(ckpt::SessionId session, const ckpt::fb::RegisterUnitsT& message);
  // Begins the next changes, as far as possible. Called at the end of each settle().
  void next();
  // Ends the change in progress.
  void answer(const RequestedChange& change, const QueryAnswer& answer);
  // Appends the records. Once they are applied, `then` makes the answer.
  void record(const RequestedChange& change, std::vector<ckpt::fb::RecordT> records,
              std::function<QueryAnswer()> then);

 private:
  const Needs needs_;
  std::deque<RequestedChange> waiting_;
  std::optional<RunGate::Token> in_progress_;  // of a change with a verb
};

}  // namespace ckptd
