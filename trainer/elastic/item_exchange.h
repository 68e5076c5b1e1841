// ItemExchange: executes a migration plan. Pieces of state go from ranks that hold them to ranks
// that need them, in rounds, each with a CRC32C that is checked on arrival.
//
// Used from the rank's thread. After a failure the sources are untouched, and some receivers have
// some of their items: the next exchange begins anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/elastic/migration_plan.h"

namespace moetrain {

// State that is cut into the items of a migration plan.
class MovingItems {
 public:
  virtual ~MovingItems() = default;
  virtual uint64_t bytes(uint32_t item) const = 0;  // the same on every rank
  virtual std::string name(uint32_t item) const = 0;
  // Reads an item that this rank holds. Errors are the device's.
  virtual Status read(uint32_t item, std::span<std::byte> to) = 0;
  // Takes an item that has arrived undamaged.
  virtual void write(uint32_t item, std::span<const std::byte> from) = 0;
};

// Before each item in a buffer: its CRC32C, in 8 bytes so that the item stays aligned.
inline constexpr uint64_t kItemHeaderBytes = 8;

class ItemExchange {
 public:
  // A collective. `where` ("step 30") begins the message about an item that arrived damaged. Such a
  // failure is kAborted, like a lost member, since all sources still have the item; the third in a
  // row is kCorrupt. `buffer_max`: the plan's limit for the bytes of a rank's send and receive
  // buffers together (asserted).
  Status run(Comm& comm, const MigrationPlan& plan, MovingItems& items, const std::string& where,
             uint64_t buffer_max = UINT64_MAX);
  // Most bytes of both buffers in the last run().
  uint64_t buffer_bytes() const { return buffer_bytes_; }

 private:
  Status round(Comm& comm, const std::vector<Move>& moves, MovingItems& items,
               const std::string& where);
  Status receive_item(std::span<const std::byte> bytes, const Move& move, MovingItems& items,
                      const std::string& where);

  uint64_t buffer_max_ = UINT64_MAX;  // of this run
  uint64_t buffer_bytes_ = 0;
  uint32_t damaged_in_a_row_ = 0;  // exchanges that failed because an item arrived damaged
};

}  // namespace moetrain
