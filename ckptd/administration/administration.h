// Administration: changes of history that users request, by verb: tags, pins, rules, grants, prunes
// and removals.
//
// Owns the queue of changes and the removal in progress. Loop thread only. Nothing to close: work
// in progress is a callback of History, which its owner drains. After a failed write the change is
// answered with the error, and the catalog is unchanged.
#pragma once

#include <functional>
#include <string_view>

#include "ckptd/administration/change_context.h"
#include "ckptd/administration/change_queue.h"
#include "ckptd/administration/removals.h"

namespace ckptd {

class Administration {
 public:
  struct Needs {
    History& history;
    Turn& turn;
    Sessions& sessions;
    const Replies& replies;
    RunGate& gate;
    // The catalog as the session may see it.
    std::function<QueryContext(const Session&)> query_context;
    // The turn of a queued registration: it may replace a run.
    std::function<void(Session&, const ckpt::fb::RegisterUnitsT&)> register_replacing;
    Removals::Outside removals;
  };
  using Counters = Removals::Counters;
  explicit Administration(Needs needs);
  Administration(const Administration&) = delete;
  Administration& operator=(const Administration&) = delete;

  // True for verbs of administer().
  static bool handles(std::string_view verb);
  // Queues the change; its answer follows.
  void administer(const Session& session, const ckpt::fb::QueryT& message) {
    queue_.add(session, message);
  }
  // Queues a registration that may replace a run. An error: it is not queued.
  Status queue_registration(ckpt::SessionId session, const ckpt::fb::RegisterUnitsT& message) {
    return queue_.add_registration(session, message);
  }
  // Settle: changes that waited for the catalog.
  void next() { queue_.next(); }
  Status may_remove(const RunInfo& run) const { return removals_.may_remove(run); }

  const Counters& counters() const { return removals_.counters(); }

 private:
  void execute(const Session& session, const RequestedChange& change);

  ChangeQueue queue_;
  const ChangeContext context_;
  Removals removals_;
};

}  // namespace ckptd
