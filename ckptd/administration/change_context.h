// Shared by the handlers of changes: each checks its arguments and the user's rights, and ends with
// an answer from the queue.
#pragma once

#include <functional>
#include <utility>

#include "ckptd/administration/change_queue.h"
#include "ckptd/catalog/catalog.h"
#include "ckptd/history/make_record.h"

namespace ckptd {

struct ChangeContext {
  History& history;
  const Turn& turn;
  ChangeQueue& queue;
  // The catalog as the session may see it.
  std::function<QueryContext(const Session&)> query_context;

  void refuse(const RequestedChange& change, const ckpt::Error& error) const {
    queue.answer(change, error_answer(error));
  }
};

// A record about the commit at this point.
template <typename BodyT>
ckpt::fb::RecordT record_at(const RunInfo& run, ViewPoint point, uint64_t time_ns,
                            BodyT body = {}) {
  body.run = run.id;
  body.lineage = point.lineage;
  body.step = point.step;
  body.time_ns = time_ns;
  return make_record(std::move(body));
}

}  // namespace ckptd
