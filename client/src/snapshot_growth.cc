// Growth of a snapshot: units that no commit has yet ride on its begin.
#include <algorithm>

#include "client/src/blobs.h"
#include "client/src/snapshot.h"
#include "formats/wire/protocol.h"

namespace ckpt::lib {

bool Session::growth_in_flight() const {
  return std::ranges::any_of(snapshots_, [](const auto& snapshot) { return snapshot->grows(); });
}

Status Snapshot::check_daemon_takes_all() const {
  if (!options_.blobs.empty()) CKPT_TRY(check_blobs_known(*session_, name()));
  if (begin_.grown.empty() || session_->protocol() >= wire::kProtocolOfGrowth) return ok_status();
  return make_error(ErrorCode::kVersionMismatch,
                    "{}: ckptd speaks protocol {}, and a run that grows needs {}: upgrade ckptd",
                    name(), session_->protocol(), wire::kProtocolOfGrowth);
}

// A snapshot with a part of the new units waits until an earlier one with all of them is durable.
Status Snapshot::prepare_growth() {
  const Deadline until = deadline();
  for (;;) {
    auto growth = session_->run_units().growth_of(begin_.units);
    if (growth.ok()) {
      begin_.grown = std::move(growth).value();
      return check_daemon_takes_all();
    }
    if (!session_->growth_in_flight() || until.expired() || session_->interrupted()) {
      return make_error(growth.error().code, "{}: {}", name(), growth.error().message);
    }
    CKPT_TRY(session_->group().check_alive(name()));
    session_->pump(until);
  }
}

}  // namespace ckpt::lib
