// Health: the conditions that impair ckptd, each with its start time, cause and remedy.
// /healthz, /readyz, `ckptctl status` and the metrics show this one state; ckptd logs every
// change.
//
// Pure: the code that detects a condition reports it with set(). Loop thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ckptd {

// The names (condition_name) are part of the status document and of the metrics: never rename them.
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
  // Causes of one kind count as one cause, whatever their numbers. Only a new kind gives a new log
  // line.
  std::string kind;
};

class Health {
 public:
  struct Held {
    Fault fault;
    uint64_t since_ns = 0;  // wall clock
  };
  enum class Change : uint8_t { kNone, kBegan, kCauseChanged, kEnded };

  // Reports the current state of the condition; no fault: it does not hold. The newest text
  // replaces the previous one.
  Change set(Condition condition, std::optional<Fault> fault, uint64_t now_ns);

  // Null: the condition does not hold.
  const Held* held(Condition condition) const;
  // How often the condition began since startup.
  uint64_t times_begun(Condition condition) const;
  bool ok() const;        // no condition holds
  bool can_save() const;  // no condition of stops_saving() holds
  // The condition to name if there is room for only one; null: none holds.
  const Held* worst() const;

 private:
  struct State {
    std::optional<Held> held;
    uint64_t times_begun = 0;
  };
  std::array<State, kConditions> states_;
};

}  // namespace ckptd
