// RankState: the state of one rank process: its options, its part of the model, its progress, and
// its place in the current group.
//
// A value that the drivers of this folder share. run_rank() makes and owns it. Only the rank's
// thread uses it. After the loss of a group all parts stay usable: survivors keep their state.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/device_link.h"
#include "trainer/checkpoint/partial_checkpoint.h"
#include "trainer/checkpoint/state_memory.h"
#include "trainer/data.h"
#include "trainer/elastic/events.h"
#include "trainer/elastic/member.h"
#include "trainer/elastic/rank_options.h"
#include "trainer/loop.h"
#include "trainer/partial/pacer.h"

namespace moetrain {

// The tensors that a rank holds, and where the bytes of each unit lie in memory.
struct HeldState {
  std::vector<StateUnit> units;  // of the whole model
  std::unique_ptr<Device> device;
  std::unique_ptr<Model> model;
  // Replicated experts: the ranks that compute and hold them. Sharded experts: the ranks that
  // compute them when an epoch begins; later steps change only the store's placement.
  ComputePlacement placement;
  ExpertStamps stamps;
  std::vector<std::byte> trainer_unit;
  std::optional<StateMemory> memory;  // set once the struct has its final address

  // Gives the model the experts of `rank` under this placement. Experts that the rank did not hold
  // before are zero. On a GPU the caller has settled the device.
  Status hold(const ComputePlacement& next, uint32_t rank);
  // The same, where the rank holds `owned`, which are in no store.
  Status hold(const ComputePlacement& next, uint32_t rank, std::vector<OwnedRange> owned);
  // Locates all bytes again, after the model's experts have changed.
  void remap();
};

// The place of a rank in the newest epoch. `rank` and `group` change when the group is connected.
struct Seat {
  uint64_t epoch = 0;
  uint32_t rank = 0;
  RankGroup group;
};

// Requests by signal: to save and stop, and to hand the state over and leave.
struct RankRequests {
  const std::atomic<bool>& stop;
  const std::atomic<bool>& drain;
};

struct RankState {
  // Checks the options, loads the data, builds the model and registers with ckptd. The arguments
  // outlive the state. Any error is final for the process.
  static Result<std::unique_ptr<RankState>> prepare(const RankOptions& options, EventWriter& events,
                                                    const RankRequests& asked);
  RankState(const RankState&) = delete;
  RankState& operator=(const RankState&) = delete;

  const RankOptions& options;
  EventWriter& events;
  const RankRequests asked;
  const Corpus corpus;
  HeldState held;
  Trainer trainer;
  Progress progress;
  // Sharded experts: the counts that steps are planned from, up to progress.step (StepPlacement).
  std::optional<LoadWindow> load_window;
  float last_loss = 0;
  PartialCheckpoint partial;
  Pacer pacer;
  Member member;
  std::unique_ptr<DeviceLink> link;  // null where the device is the host
  Seat seat;

  // For events: the newest epoch, and the step that the progress is at.
  EventHeader here() const { return {.epoch = seat.epoch, .step = progress.step}; }
  // "run tiny step 30": names the object of messages.
  std::string where() const;
  // Logs "run tiny step 30: TEXT".
  void say(const std::string& text) const;
  // The same for text that all ranks would log: only rank 0 logs it.
  void log_once(const std::string& text) const;
  // On a GPU, makes the device wait until staged snapshots have been gathered. Call this before
  // queuing work that overwrites the model's state, or memory that the model is about to free.
  void settle_device();

 private:
  RankState(const RankOptions& with_options, EventWriter& with_events,
            const RankRequests& with_requests, Corpus with_corpus, HeldState with_state,
            Member with_member);
};

}  // namespace moetrain
