// Watchdog: finds ranks that hang. Pure: what was seen, and when, goes in; verdicts come out.
//
// To wait is not to hang: for ckptd, for the others, for bytes. Every wait of a rank is bounded in
// the rank itself, and a rank says what it is about before it begins to wait. Nor is a long step.
// So a rank is given up in three cases only, each timed from an event of its own:
//   - Nothing was heard of its process at all, although its heart has beaten before. Whoever asks
//     must have listened meanwhile: a supervisor that was stopped itself has heard nobody, and
//     begins to count anew.
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
  // How long a rank may stay where it is.
  struct Patience {
    // Once somebody has left its epoch.
    uint64_t joining_ms = 20'000;     // the answer is on its way
    uint64_t connecting_ms = 60'000;  // waits for addresses and for peers are bounded
    uint64_t restoring_ms = 100'000;
    uint64_t training_ms = 25'000;  // until the next collective; a snapshot may wait for room
    uint64_t saving_ms = 100'000;
    // Whatever the others do.
    uint64_t starting_ms = 150'000;
    uint64_t leaving_ms = 40'000;
    uint64_t silent_ms = 0;  // 0: silence is no sign
  };
  explicit Watchdog(uint32_t ranks) : Watchdog(ranks, Patience()) {}
  Watchdog(uint32_t ranks, const Patience& patience) : patience_(patience), ranks_(ranks) {}

  // A rank that was not there before joins.
  void add_rank() { ranks_.emplace_back(); }
  void started(uint32_t rank, uint64_t now_ns);
  void ended(uint32_t rank);
  void add(const RankEvent& event);

  struct Hang {
    uint32_t rank = 0;
    std::string what;  // "training in epoch 3, which others left 25 s ago"
  };
  // Those that hang now; each is named once, because it will be killed. All events that have come
  // in were added. To be asked again and again, several times in silent_ms.
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
    uint64_t epoch = 0;     // the newest one this process has been in
    uint64_t heard_ns = 0;  // its newest sign of life; 0: its heart does not beat yet
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
  // The newest epoch that opened, and the newest that somebody left.
  uint64_t opened_epoch_ = 0;
  uint64_t opened_ns_ = 0;
  uint64_t lost_epoch_ = 0;
  uint64_t lost_ns_ = 0;
  uint64_t lost_opened_ns_ = 0;
  uint64_t asked_ns_ = 0;  // when hanging() was called last
};

}  // namespace moetrain
