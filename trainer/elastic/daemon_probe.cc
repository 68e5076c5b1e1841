#include "trainer/elastic/daemon_probe.h"

#include <chrono>
#include <ckpt/client.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace moetrain {

namespace client = ckpt::client;
using Clock = std::chrono::steady_clock;

namespace {

constexpr uint32_t kHeartbeatMs = 200;
constexpr uint32_t kPollMs = 100;
constexpr uint32_t kOpenMs = 100;  // one try; the next follows at once
constexpr uint32_t kStatusMs = 1'000;
constexpr std::chrono::milliseconds kStatusEvery{1'000};

// Callback of the session's waits: true ends them, with the probe.
int asked_to_stop(void* stop) {
  return static_cast<const std::stop_token*>(stop)->stop_requested() ? 1 : 0;
}

// nullopt: ckptd did not answer.
std::optional<uint64_t> ask_bytes_written(client::Session& session) {
  const auto status = session.query("status", "{}", kStatusMs);
  if (!status.ok()) return std::nullopt;
  const auto document = nlohmann::json::parse(status->json, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return std::nullopt;
  const auto found = document.find("segment_bytes_written");
  if (found == document.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

}  // namespace

DaemonProbe::DaemonProbe(std::string socket)
    : socket_(std::move(socket)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

uint64_t DaemonProbe::hangs_ms() const {
  const uint64_t silent_ms = silent_ms_.load();
  const uint64_t forgiven_ms = forgiven_ms_.load();
  return silent_ms < forgiven_ms ? silent_ms : silent_ms - forgiven_ms;
}

// The forgiven time is reset when that silence ends.
void DaemonProbe::set_silent_ms(uint64_t silent_ms) {
  silent_ms_ = silent_ms;
  if (silent_ms == 0) forgiven_ms_ = 0;
}

void DaemonProbe::run(const std::stop_token& stop) {
  std::stop_token asked = stop;
  client::OpenOptions options;
  options.socket = socket_;
  options.client_name = "moetrain";
  options.control = true;
  options.timeout_ms = kOpenMs;
  options.heartbeat_ms = kHeartbeatMs;
  options.interrupted = asked_to_stop;
  options.interrupted_context = &asked;
  std::optional<client::Session> session;
  while (!session && !stop.stop_requested()) {
    const auto begin = Clock::now();
    auto opened = client::Session::open(options);
    if (opened.ok()) {
      session = std::move(opened).value();
      break;
    }
    // An immediate error, such as a refusal, must not cause a busy loop.
    std::this_thread::sleep_until(begin + std::chrono::milliseconds(kOpenMs));
    silent_ms_ += kOpenMs;
    gone_ = true;
  }
  auto next_status = Clock::now();
  while (!stop.stop_requested()) {
    (void)session->poll(kPollMs);
    set_silent_ms(session->silence_ms());
    gone_ = session->fd() < 0;
    if (silent_ms_ != 0 || Clock::now() < next_status) continue;
    if (const auto bytes = ask_bytes_written(*session)) bytes_written_ = *bytes;
    set_silent_ms(session->silence_ms());
    next_status = Clock::now() + kStatusEvery;
  }
}

}  // namespace moetrain
