// WaitingBegins: begins that wait until a snapshot of their run has ended, in the order of their
// arrival. Bounded. Pure.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "ckptd/limits.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

struct WaitingBegin {
  ckpt::SessionId session = 0;
  ckpt::fb::BeginSnapshotT message;
};

struct WaitingBeginsMax {
  size_t begins_per_run = limits::kBeginsWaitingPerRunMax;
  size_t bytes = limits::kBeginsWaitingBytesMax;  // of all runs together
};

class WaitingBegins {
 public:
  explicit WaitingBegins(const WaitingBeginsMax& max = {}) : max_(max) {}

  // False: there is no room. An error: the session's begin of this step waits already.
  ckpt::Result<bool> add(ckpt::RunId run, ckpt::SessionId session,
                         const ckpt::fb::BeginSnapshotT& message);
  // Takes the begins out, run by run, and calls `again` with each; it may add() them back.
  void retry(const std::function<void(const WaitingBegin&)>& again);
  // Takes all begins out, and calls `visit` with each.
  void drop_all(const std::function<void(const WaitingBegin&)>& visit);
  void drop_session(ckpt::SessionId session);
  // True if the session's begin of this attempt waited.
  bool drop(ckpt::RunId run, ckpt::SessionId session, ckpt::Step step, uint32_t attempt);
  size_t count() const;

 private:
  const WaitingBeginsMax max_;
  std::map<ckpt::RunId, std::deque<WaitingBegin>> by_run_;
};

}  // namespace ckptd
