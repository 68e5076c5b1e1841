// Watchdog: failure detector for hanging ranks. Pure: events and times in, verdicts out.
//
// A rank that waits does not hang: for ckptd, for the others, for bytes. Every wait is bounded in
// the rank itself, and a rank announces a wait before it begins. A long step is no hang either.
// So a rank is declared hanging in three cases only, each timed from an event of its own:
//   - No event of its process has arrived, although it has sent heartbeats before. The caller must
//     have listened meanwhile: a supervisor that was stopped itself has heard nothing, and
//     restarts the count.
//   - Another rank has left an epoch that this one was in, and it has not followed in the time that
//     its state allows. A process that was started after that epoch opened was never in it.
//   - It is in a state that it would have ended itself, and a margin has passed since.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/elastic/events.h"

namespace moetrain {

class Watchdog {
 public:
  // Time limit of each state of a rank.
  struct Patience {
    // After another rank has left the epoch.
    uint64_t joining_ms = 20'000;     // the answer is in flight
    uint64_t connecting_ms = 60'000;  // waits for addresses and for peers are bounded
    uint64_t restoring_ms = 100'000;
    uint64_t training_ms = 25'000;  // until the next collective; a snapshot may wait for room
    uint64_t saving_ms = 100'000;
    // Regardless of the other ranks.
    uint64_t starting_ms = 150'000;
    uint64_t leaving_ms = 40'000;
    uint64_t silent_ms = 0;  // 0: silence does not count
  };
  explicit Watchdog(uint32_t ranks) : Watchdog(ranks, Patience()) {}
  Watchdog(uint32_t ranks, const Patience& patience) : patience_(patience), ranks_(ranks) {}

  // Adds a new rank.
  void add_rank() { ranks_.emplace_back(); }
  void started(uint32_t rank, uint64_t now_ns);
  void ended(uint32_t rank);
  void add(const RankEvent& event);

  struct Hang {
    uint32_t rank = 0;
    std::string reason;  // "training in epoch 3, which others left 25 s ago"
  };
  // Ranks that hang now; each is named once, because it will be killed. Precondition: all received
  // events were added. Call repeatedly, several times in silent_ms.
  std::vector<Hang> hanging(uint64_t now_ns);

 private:
  enum class State : uint8_t {
    kNone,  // no process
    kStarting,
    kJoining,
    kConnecting,
    kRestoring,
    kTraining,
    kSaving,
    kLeaving,
    kDone,
  };
  struct Rank {
    State state = State::kNone;
    uint64_t since_ns = 0;
    uint64_t epoch = 0;          // the newest epoch of this process
    uint64_t last_event_ns = 0;  // its newest event; 0: no heartbeat yet
  };
  void enter(const EventHeader& at, State state);
  void on(const EventHeader& at, const JoiningEvent&) { enter(at, State::kJoining); }
  void on(const EventHeader& at, const ConnectingEvent&);
  void on(const EventHeader& at, const RestoringEvent&) { enter(at, State::kRestoring); }
  void on(const EventHeader& at, const TrainingEvent&) { enter(at, State::kTraining); }
  void on(const EventHeader& at, const SavingEvent&) { enter(at, State::kSaving); }
  void on(const EventHeader& at, const GroupLostEvent&) { left_epoch(at); }
  void on(const EventHeader& at, const RegroupingEvent&) { left_epoch(at); }
  template <OneOf<SavedEvent, FatalEvent, DrainedEvent> Last>
  void on(const EventHeader& at, const Last&) {
    enter(at, State::kDone);
  }
  template <
      OneOf<AliveEvent, DyingEvent, LogEvent, NoticeEvent, PacingEvent, PostponedEvent,
            ReplannedEvent, ScheduleEvent, SnapshotEvent, StallingEvent, StepEvent, TakingEvent>
          Other>
  void on(const EventHeader&, const Other&) {}
  void left_epoch(const EventHeader& at);
  bool is_silent(const Rank& rank, uint64_t now_ns) const;
  void forgive_silence(uint64_t now_ns);
  std::optional<std::string> judge(const Rank& rank, uint64_t now_ns) const;

  const Patience patience_;
  std::vector<Rank> ranks_;
  // The newest epoch that opened, and the newest that a rank left.
  uint64_t opened_epoch_ = 0;
  uint64_t opened_ns_ = 0;
  uint64_t lost_epoch_ = 0;
  uint64_t lost_ns_ = 0;
  uint64_t lost_opened_ns_ = 0;
  uint64_t checked_ns_ = 0;  // time of the last call of hanging()
};

}  // namespace moetrain
