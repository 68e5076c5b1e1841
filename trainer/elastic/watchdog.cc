#include "trainer/elastic/watchdog.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetrain {

namespace {

constexpr uint64_t kMillisecondNs = 1'000'000;

uint64_t seconds_between(uint64_t from_ns, uint64_t to_ns) {
  return (to_ns - std::min(from_ns, to_ns)) / (1'000 * kMillisecondNs);
}

}  // namespace

void Watchdog::started(uint32_t rank, uint64_t now_ns) {
  ranks_[rank] = {.state = State::kStarting, .since_ns = now_ns};
}

void Watchdog::ended(uint32_t rank) { ranks_[rank] = {}; }

void Watchdog::enter(const EventHeader& at, State state) {
  Rank& rank = ranks_[at.rank];
  rank.state = state;
  rank.since_ns = at.time_ns;
  if (at.epoch != 0) rank.epoch = at.epoch;
}

void Watchdog::add(const RankEvent& event) {
  Rank& rank = ranks_[event.header.rank];
  if (rank.last_event_ns != 0 || event.as<AliveEvent>() != nullptr) {
    rank.last_event_ns = std::max(rank.last_event_ns, event.header.time_ns);
  }
  std::visit([&](const auto& body) { on(event.header, body); }, event.body);
}

void Watchdog::on(const EventHeader& at, const ConnectingEvent& /*connecting*/) {
  if (at.epoch > opened_epoch_) {
    opened_epoch_ = at.epoch;
    opened_ns_ = at.time_ns;
  }
  enter(at, State::kConnecting);
}

void Watchdog::left_epoch(const EventHeader& at) {
  if (at.epoch > lost_epoch_) {
    lost_epoch_ = at.epoch;
    lost_ns_ = at.time_ns;
    lost_opened_ns_ = opened_ns_;
  }
  enter(at, State::kLeaving);
}

bool Watchdog::is_silent(const Rank& rank, uint64_t now_ns) const {
  if (patience_.silent_ms == 0 || rank.last_event_ns == 0) return false;
  if (rank.state == State::kNone || rank.state == State::kDone) return false;
  return now_ns > rank.last_event_ns + patience_.silent_ms * kMillisecondNs;
}

// The supervisor did not listen for a while: heartbeats may have been lost to full pipes.
void Watchdog::forgive_silence(uint64_t now_ns) {
  for (Rank& rank : ranks_) {
    if (rank.last_event_ns != 0) rank.last_event_ns = std::max(rank.last_event_ns, now_ns);
  }
}

// Why the rank counts as hanging; nullopt: it does not.
std::optional<std::string> Watchdog::judge(const Rank& rank, uint64_t now_ns) const {
  const auto alone = [&](uint64_t patience_ms, const char* state) -> std::optional<std::string> {
    if (now_ns < rank.since_ns + patience_ms * kMillisecondNs) return std::nullopt;
    return fmt::format("{} for {} s", state, seconds_between(rank.since_ns, now_ns));
  };
  const auto left_behind = [&](uint64_t patience_ms,
                               const char* state) -> std::optional<std::string> {
    const uint64_t from_ns = std::max(rank.since_ns, lost_ns_);
    if (now_ns < from_ns + patience_ms * kMillisecondNs) return std::nullopt;
    return fmt::format("{} epoch {}, which others left {} s ago", state, lost_epoch_,
                       seconds_between(lost_ns_, now_ns));
  };
  if (is_silent(rank, now_ns)) {
    return fmt::format("silent for {:.1f} s",
                       static_cast<double>(now_ns - rank.last_event_ns) / 1e9);
  }
  const bool in_lost_epoch = lost_epoch_ != 0 && rank.epoch <= lost_epoch_;
  switch (rank.state) {
    case State::kNone:
    case State::kDone:
      return std::nullopt;
    case State::kStarting:
      return alone(patience_.starting_ms, "starting");
    case State::kLeaving:
      return alone(patience_.leaving_ms, "leaving its epoch");
    case State::kJoining:
      // An epoch opens when all ranks have asked: earlier requests have been answered.
      if (!in_lost_epoch || rank.since_ns >= lost_opened_ns_) return std::nullopt;
      return left_behind(patience_.joining_ms, "joining");
    case State::kConnecting:
      if (!in_lost_epoch) return std::nullopt;
      return left_behind(patience_.connecting_ms, "connecting in");
    case State::kRestoring:
      if (!in_lost_epoch) return std::nullopt;
      return left_behind(patience_.restoring_ms, "restoring in");
    case State::kTraining:
      if (!in_lost_epoch) return std::nullopt;
      return left_behind(patience_.training_ms, "training in");
    case State::kSaving:
      if (!in_lost_epoch) return std::nullopt;
      return left_behind(patience_.saving_ms, "saving in");
  }
  return std::nullopt;
}

std::vector<Watchdog::Hang> Watchdog::hanging(uint64_t now_ns) {
  const uint64_t gap_ns_max = patience_.silent_ms * kMillisecondNs / 2;
  if (checked_ns_ != 0 && now_ns > checked_ns_ + gap_ns_max) forgive_silence(now_ns);
  checked_ns_ = now_ns;
  std::vector<Hang> hangs;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    std::optional<std::string> reason = judge(ranks_[rank], now_ns);
    if (!reason) continue;
    hangs.push_back({rank, std::move(*reason)});
    ranks_[rank] = {};
  }
  return hangs;
}

}  // namespace moetrain
