// A communicator that is slow at random, and whose rank dies in a collective of one's choice.
#pragma once

#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "trainer/comm/forwarding_comm.h"

namespace moetrain {

// Collectives come from one thread. Death closes the connections, as that of a process does.
class FaultyComm final : public ForwardingComm {
 public:
  struct Faults {
    uint64_t seed = 0;
    std::chrono::microseconds delay_max{0};
    uint64_t dies_in = 0;  // the number of the collective, from 1; 0: never
  };
  FaultyComm(std::unique_ptr<Comm> comm, const Faults& faults)
      : ForwardingComm(*comm), comm_(std::move(comm)), faults_(faults), random_(faults.seed) {}

  uint64_t collectives() const { return collectives_; }

 protected:
  Status run(const Collective& collective) override {
    const int64_t most = faults_.delay_max.count();
    std::uniform_int_distribution<int64_t> delay_us(0, most);
    // Half of the collectives are late.
    if (most > 0 && random_() % 2 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(delay_us(random_)));
    }
    if (++collectives_ == faults_.dies_in) inner().abort("killed by the test");
    return collective(inner());
  }

 private:
  const std::unique_ptr<Comm> comm_;
  const Faults faults_;
  std::mt19937_64 random_;
  uint64_t collectives_ = 0;
};

}  // namespace moetrain
