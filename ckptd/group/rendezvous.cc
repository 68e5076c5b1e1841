#include "ckptd/group/rendezvous.h"

#include "ckptd/limits.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

ckpt::Result<std::vector<Rendezvous::Waiter>> Rendezvous::set(const std::string& key,
                                                              std::vector<uint8_t> value) {
  if (value.size() > limits::kKvValueBytesMax || key.size() > limits::kKvKeyBytesMax) {
    return make_error(ErrorCode::kResourceExhausted,
                      "rendezvous: a key of {} and a value of {} bytes; the most is {} and {}",
                      key.size(), value.size(), limits::kKvKeyBytesMax, limits::kKvValueBytesMax);
  }
  if (!values_.contains(key) && values_.size() >= limits::kKvKeysPerEpochMax) {
    return make_error(ErrorCode::kResourceExhausted, "rendezvous: {} keys are set, the most",
                      values_.size());
  }
  const auto known = values_.find(key);
  const size_t frees = known == values_.end() ? 0 : key.size() + known->second.size();
  CKPT_TRY(check_room(key.size() + value.size(), frees));
  bytes_ += key.size() + value.size() - frees;
  values_[key] = std::move(value);
  const auto waiting = waiting_.find(key);
  if (waiting == waiting_.end()) return std::vector<Waiter>{};
  bytes_ -= key.size();
  std::vector<Waiter> waiters = std::move(waiting->second);
  waiting_.erase(waiting);
  for (const Waiter& waiter : waiters) --waiting_of_[waiter.session];
  return waiters;
}

ckpt::Result<const std::vector<uint8_t>*> Rendezvous::get(const std::string& key,
                                                          const Waiter& waiter) {
  if (const auto found = values_.find(key); found != values_.end()) return &found->second;
  size_t& waiting = waiting_of_[waiter.session];
  if (waiting >= limits::kPendingRequestsPerSessionMax || key.size() > limits::kKvKeyBytesMax) {
    return make_error(ErrorCode::kResourceExhausted,
                      "rendezvous: the session waits for {} keys, the most is {}", waiting,
                      limits::kPendingRequestsPerSessionMax);
  }
  if (!waiting_.contains(key)) {
    CKPT_TRY(check_room(key.size(), 0));
    bytes_ += key.size();
  }
  ++waiting;
  waiting_[key].push_back(waiter);
  return static_cast<const std::vector<uint8_t>*>(nullptr);
}

ckpt::Status Rendezvous::check_room(size_t takes, size_t frees) const {
  if (bytes_ - frees + takes <= limits::kKvBytesPerEpochMax) return {};
  return make_error(
      ErrorCode::kResourceExhausted,
      "rendezvous: {} bytes are held and {} more were sent, the most of an epoch is {}",
      bytes_ - frees, takes, limits::kKvBytesPerEpochMax);
}

void Rendezvous::forget(ckpt::SessionId session) {
  waiting_of_.erase(session);
  for (auto entry = waiting_.begin(); entry != waiting_.end();) {
    std::erase_if(entry->second, [&](const Waiter& waiter) { return waiter.session == session; });
    if (!entry->second.empty()) {
      ++entry;
      continue;
    }
    bytes_ -= entry->first.size();
    entry = waiting_.erase(entry);
  }
}

std::vector<Rendezvous::Waiter> Rendezvous::take_waiters() {
  std::vector<Waiter> all;
  for (auto& [key, waiters] : waiting_) {
    all.insert(all.end(), waiters.begin(), waiters.end());
    bytes_ -= key.size();
  }
  waiting_.clear();
  waiting_of_.clear();
  return all;
}

}  // namespace ckptd
