// Health: the conditions that keep ckptd from doing all of its work, each with the time it began,
// its cause and its remedy. /healthz, /readyz, `ckptctl status` and the metrics show this one
// state; ckptd's log has a line whenever it changes.
//
// Pure: whoever finds a condition reports it with set(). Loop thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ckptd {

// The names (condition_name) are part of the status document and of the metrics: they stay.
enum class Condition : uint8_t {
  kDiskFull,           // no room for the next snapshot
  kWritesFailing,      // writes of snapshots fail, though there is room
  kDiskSlow,           // trainers wait for the disk
  kCatalogUnreadable,  // the index of the journal cannot be read or written
  kJournalClosed,      // a failed write or sync has closed the journal
  kDamagedData,        // bytes of the store are known to be wrong
  kSnapshotsFailing,   // a run's last snapshots have all failed
  kUncheckedData,      // scrub could not read bytes of the store
  kCannotAccept,       // new clients cannot connect: most likely ckptd is out of descriptors
};
inline constexpr size_t kConditions = 9;

std::string_view condition_name(Condition condition);  // "disk_full"
// True if no snapshot can be saved while the condition holds: ckptd is not ready then.
bool stops_saving(Condition condition);

struct Fault {
  std::string cause;   // one sentence that names the object
  std::string remedy;  // the next thing an operator can do
  // Causes of one kind are one cause, whatever their numbers. A line of the log tells of another
  // kind only.
  std::string kind;
};

class Health {
 public:
  struct Held {
    Fault fault;
    uint64_t since_ns = 0;  // wall clock
  };
  enum class Change : uint8_t { kNone, kBegan, kCauseChanged, kEnded };

  // Reports the condition as it is now; no fault: it does not hold. The newest words replace those
  // of before.
  Change set(Condition condition, std::optional<Fault> fault, uint64_t now_ns);

  // Null: the condition does not hold.
  const Held* held(Condition condition) const;
  // How often the condition began since the start.
  uint64_t times_begun(Condition condition) const;
  bool ok() const;        // no condition holds
  bool can_save() const;  // none that stops_saving() does
  // The condition to name where there is room for one; null: none holds.
  const Held* worst() const;

 private:
  struct State {
    std::optional<Held> held;
    uint64_t times_begun = 0;
  };
  std::array<State, kConditions> states_;
};

}  // namespace ckptd
