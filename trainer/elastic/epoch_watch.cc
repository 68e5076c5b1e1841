#include "trainer/elastic/epoch_watch.h"

#include <chrono>

namespace moetrain {

namespace {

// A small part of what recovery costs anyway.
constexpr std::chrono::milliseconds kPollEvery{20};

}  // namespace

EpochWatch::EpochWatch(Member& member, Comm& comm)
    : member_(member),
      comm_(comm),
      own_(session_),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

EpochWatch::~EpochWatch() {
  thread_.request_stop();
  own_.unlock();
  thread_.join();
}

void EpochWatch::run(const std::stop_token& stop) {
  std::unique_lock lent(session_);
  while (!stop.stop_requested()) {
    member_.poll();
    if (const auto over = member_.epoch_over()) return comm_.abort(*over);
    stopped_.wait_for(lent, stop, kPollEvery, [] { return false; });
  }
}

}  // namespace moetrain
