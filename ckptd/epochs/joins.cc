// Joins that wait, or are refused because a place is taken: names the holder of the place.
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ckptd/epochs/epochs.h"
#include "ckptd/query/documents.h"
#include "formats/base/json_dump.h"
#include "formats/base/printable.h"

namespace ckptd {

namespace {

// A group may lack thousands of ranks; a message names this many.
constexpr size_t kRanksNamedMax = 16;

std::string name_ranks(std::vector<ckpt::Rank> ranks) {
  const size_t more = ranks.size() - std::min(ranks.size(), kRanksNamedMax);
  ranks.resize(ranks.size() - more);
  return fmt::format("rank{} {}{}", ranks.size() + more == 1 ? "" : "s", fmt::join(ranks, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

// "process 4711 (moetrain rank 0) of user 1000, connected since 2026-01-31T12:00:00Z". A start time
// instead of an age, so that repeated queries get the same text.
std::string describe_session(const Session& session, Time now, uint64_t wall_clock_ns) {
  const auto age_ns = static_cast<uint64_t>((now - session.connected_at).count());
  constexpr size_t kToSeconds = 19;
  const std::string since = iso_time(wall_clock_ns - std::min(wall_clock_ns, age_ns));
  return fmt::format("process {} ({}) of user {}, connected since {}Z", session.pid,
                     ckpt::base::printable(session.client), session.uid,
                     since.substr(0, kToSeconds));
}

}  // namespace

// Empty: no other session holds the place, and no other job trains the run.
std::string Epochs::describe_holder(ckpt::RunId run, const JoinRequest& request) const {
  const auto other = groups_.other_job(run, request.session, request.job);
  if (const Session* in = other ? needs_.sessions.find(*other) : nullptr; in != nullptr) {
    return fmt::format(
        "{}; train under another run name (moetrain --run), or wait for that job to end, or stop "
        "it",
        describe_session(*in, needs_.turn.now(), needs_.turn.wall_clock_ns()));
  }
  const auto id = groups_.holder(run, request);
  const Session* holder = id ? needs_.sessions.find(*id) : nullptr;
  if (holder == nullptr) return {};
  return fmt::format(
      "its place is held by {}; end the job of that process, or train under another run name",
      describe_session(*holder, needs_.turn.now(), needs_.turn.wall_clock_ns()));
}

// Logged at once, once per holder: otherwise a second job under the name of a running one would
// wait forever without a visible reason.
void Epochs::log_waiting_join(const Session& asker, const JoinRequest& request) {
  if (groups_.other_job(*asker.run, asker.id, request.job)) return;  // refused: it does not wait
  const auto id = groups_.holder(*asker.run, request);
  Session* holder = id ? needs_.sessions.find(*id) : nullptr;
  if (holder == nullptr || std::exchange(holder->wait_logged, true)) return;
  spdlog::warn("run {}: process {} ({}) of user {} waits to join as rank {}: {}", asker.run_name,
               asker.pid, ckpt::base::printable(asker.client), asker.uid, request.rank,
               describe_holder(*asker.run, request));
}

// {"waits", "reason"}: for the session's own join.
QueryAnswer Epochs::query_join(const Session& session) const {
  const auto wait = groups_.wait(session.id);
  std::string reason;
  if (wait && session.run) {
    reason = describe_holder(*session.run, wait->request);
    if (reason.empty() && !wait->missing.empty()) {
      reason =
          fmt::format("{} of {} did not join yet", name_ranks(wait->missing), wait->request.size);
    } else if (reason.empty()) {
      reason = "the epoch before has to end first";
    }
  }
  const nlohmann::json document = {{"waits", wait.has_value()}, {"reason", reason}};
  return {.exit_code = 0, .json = ckpt::base::dump_json(document)};
}

}  // namespace ckptd
