#include "trainer/elastic/daemon_probe.h"

#include <chrono>
#include <ckpt/client.hpp>
#include <optional>
#include <utility>

namespace moetrain {

namespace client = ckpt::client;

namespace {

constexpr uint32_t kAskMs = 1000;                  // for one answer
constexpr std::chrono::milliseconds kPause{1000};  // after it

bool answers(const std::string& socket, std::optional<client::Session>& session) {
  if (!session) {
    auto opened = client::Session::open(
        {.socket = socket, .client_name = "moetrain", .control = true, .timeout_ms = kAskMs});
    if (!opened.ok()) return false;
    session = std::move(opened).value();
  }
  if (session->query("status", "{}", kAskMs).ok()) return true;
  session.reset();
  return false;
}

}  // namespace

DaemonProbe::DaemonProbe(std::string socket)
    : socket_(std::move(socket)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

void DaemonProbe::run(const std::stop_token& stop) {
  std::optional<client::Session> session;
  while (!stop.stop_requested()) {
    if (answers(socket_, session)) {
      silent_ms_ = 0;
      std::unique_lock lock(mutex_);
      stopped_.wait_for(lock, stop, kPause, [] { return false; });
    } else {
      silent_ms_ += kAskMs;
    }
  }
}

}  // namespace moetrain
