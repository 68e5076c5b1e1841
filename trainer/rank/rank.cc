#include "trainer/rank/rank.h"

#include <chrono>

#include "trainer/elastic/heartbeat.h"
#include "trainer/rank/epoch_driver.h"
#include "trainer/rank/rank_state.h"

namespace moetrain {

namespace {

Status run(const RankOptions& options, EventWriter& events, const RankRequests& asked) {
  CKPT_ASSIGN(const std::unique_ptr<RankState> state, RankState::prepare(options, events, asked));
  EpochDriver driver(*state);
  return driver.run();
}

}  // namespace

int run_rank(const RankOptions& options, EventWriter& events, const std::atomic<bool>& stop,
             const std::atomic<bool>& drain) {
  const Heartbeat heartbeat(events, std::chrono::milliseconds(options.heartbeat_ms));
  const Status status = run(options, events, {stop, drain});
  if (status.ok()) return 0;
  events.write(FatalEvent{status.error().message, static_cast<int>(status.error().code)});
  return ckpt::exit_code_for(status.error().code);
}

}  // namespace moetrain
