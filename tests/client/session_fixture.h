// A session's options and polls, for tests against a daemon made of answers.
#pragma once

#include <chrono>

#include "tests/client/client_fixture.h"
#include "tests/client/fake_daemon.h"

namespace ckpt::test {

class SessionTest : public testing::Test {
 protected:
  client::OpenOptions options(uint32_t timeout_ms = 20'000) const {
    client::OpenOptions options;
    options.socket = "unix:" + socket_;
    options.run = "tiny";
    options.timeout_ms = timeout_ms;
    return options;
  }
  // False: not within 20 s.
  template <typename Condition>
  static bool polls_until(client::Session& session, Condition&& reached) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!reached()) {
      if (std::chrono::steady_clock::now() >= end || !session.poll(5).ok()) return false;
    }
    return true;
  }
  TempFolder folder_;
  std::string socket_ = folder_.path("ckptd.sock");
};

}  // namespace ckpt::test
