// Tests of staging that run with the streams of trainer, gathering and draining each late or eager,
// and with all of a snapshot queued at once or some of it later. On the emulated device only.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/support/cuda_emulator/control.h"

namespace ckpt::test {

struct StreamOrder {
  unsigned eager;        // a bit each: the trainer's stream, gathering, draining
  uint64_t ahead_bytes;  // of ckpt_cuda_options; 0: all of it is queued at once
};

// A fixture `Base` whose streams are as the parameter says.
template <typename Base>
class WithStreamOrder : public Base, public testing::WithParamInterface<StreamOrder> {
 protected:
  void SetUp() override {
    cuda_emulator::make_eager(GetParam().eager);
    Base::SetUp();
  }
  void TearDown() override {
    Base::TearDown();
    cuda_emulator::make_eager(0);
  }
};

inline std::vector<StreamOrder> all_stream_orders() {
  std::vector<StreamOrder> all;
  for (unsigned eager = 0; eager < 8; ++eager) {
    for (const uint64_t ahead_bytes : {0, 1}) all.push_back({eager, ahead_bytes});
  }
  return all;
}

}  // namespace ckpt::test
