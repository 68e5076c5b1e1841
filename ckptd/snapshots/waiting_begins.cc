#include "ckptd/snapshots/waiting_begins.h"

#include <algorithm>

namespace ckptd {

namespace fb = ckpt::fb;

namespace {

// Estimated memory of a waiting begin, in bytes.
size_t memory_bytes(const fb::BeginSnapshotT& message) {
  size_t blob_names = 0;
  for (const auto& blob : message.blobs) blob_names += blob->name.size();
  uint64_t growth = 0;
  for (const auto& grown : message.grown) {
    growth += sizeof(*grown) + sizeof(*grown->unit) + grown->unit->name.size();
    for (const auto& tensor : grown->unit->tensors) {
      growth += sizeof(*tensor) + tensor->name.size() + tensor->shape.size() * sizeof(uint64_t);
    }
  }
  return sizeof(message) + blob_names + growth +
         (message.units.size() + message.memory_units.size()) * sizeof(ckpt::UnitId) +
         message.fragments.size() * sizeof(fb::Range) +
         message.blobs.size() * sizeof(fb::BlobDeclaredT) +
         message.metrics.size() * (sizeof(fb::MetricT) + limits::kMetricNameBytesMax) +
         (message.expert_tokens.size() + message.expert_lost.size()) * sizeof(fb::ExpertTokens);
}

}  // namespace

ckpt::Result<bool> WaitingBegins::add(ckpt::RunId run, ckpt::SessionId session,
                                      const fb::BeginSnapshotT& message) {
  auto& waiting = by_run_[run];
  size_t bytes = memory_bytes(message);
  for (const auto& [of_run, begins] : by_run_) {
    for (const WaitingBegin& begin : begins) bytes += memory_bytes(begin.message);
  }
  const bool twice = std::any_of(waiting.begin(), waiting.end(), [&](const WaitingBegin& begin) {
    return begin.session == session && begin.message.step == message.step;
  });
  if (twice) {
    return ckpt::make_error(ckpt::ErrorCode::kAlreadyExists,
                            "this rank waits to begin this step already");
  }
  if (waiting.size() >= max_.begins_per_run || bytes > max_.bytes) return false;
  waiting.push_back({session, message});
  return true;
}

void WaitingBegins::retry(const std::function<void(const WaitingBegin&)>& again) {
  for (auto& [run, begins] : by_run_) {
    const std::deque<WaitingBegin> taken = std::exchange(begins, {});
    for (const WaitingBegin& begin : taken) again(begin);
  }
}

void WaitingBegins::drop_all(const std::function<void(const WaitingBegin&)>& visit) {
  const auto dropped = std::exchange(by_run_, {});
  for (const auto& [run, begins] : dropped) {
    for (const WaitingBegin& begin : begins) visit(begin);
  }
}

void WaitingBegins::drop_session(ckpt::SessionId session) {
  for (auto& [run, begins] : by_run_) {
    std::erase_if(begins,
                  [session](const WaitingBegin& begin) { return begin.session == session; });
  }
}

bool WaitingBegins::drop(ckpt::RunId run, ckpt::SessionId session, ckpt::Step step,
                         uint32_t attempt) {
  const size_t dropped = std::erase_if(by_run_[run], [&](const WaitingBegin& begin) {
    return begin.session == session && begin.message.step == step &&
           begin.message.attempt == attempt;
  });
  return dropped > 0;
}

size_t WaitingBegins::count() const {
  size_t count = 0;
  for (const auto& [run, begins] : by_run_) count += begins.size();
  return count;
}

}  // namespace ckptd
