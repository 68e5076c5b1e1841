#include "ckptd/server/socket_watch.h"

#include <spdlog/spdlog.h>

#include "ckptd/observe/log_event.h"

namespace ckptd {

namespace {

constexpr std::chrono::seconds kPollEvery{1};

}  // namespace

bool SocketWatch::poll(Clock::time_point now) {
  if (now < next_poll_) return false;
  next_poll_ = now + kPollEvery;
  if (fault_.empty() && file_.intact()) return false;
  const ckpt::Status renewed = file_.renew();
  if (renewed.ok()) {
    fault_.clear();
    log_event(spdlog::level::warn, "socket_renewed", {{"socket", path_}},
              "socket {}: its file was gone ({}); it is made anew", path_, loss_);
    return true;
  }
  report(fmt::format("{}: the file of socket {} is gone and cannot be made anew: {}", loss_, path_,
                     renewed.error().message));
  return false;
}

void SocketWatch::failed(const std::string& reason) {
  report(fmt::format("{}: nobody listens on socket {}: {}", loss_, path_, reason));
}

void SocketWatch::report(std::string fault) {
  if (fault != fault_) {
    log_event(spdlog::level::err, "socket_gone", {{"socket", path_}, {"reason", fault}}, "{}",
              fault);
  }
  fault_ = std::move(fault);
}

}  // namespace ckptd
