#include "tests/support/nccl_double/exchange.h"

#include <chrono>
#include <cstring>

namespace nccl_double {

namespace {

// Between two questions for a stream that peers keep waiting.
constexpr std::chrono::microseconds kPeerPollInterval{100};

// Name of a message: kind, number within its kind, sender and receiver.
std::string letter(const char* kind, size_t number, int from, int to) {
  return std::string(kind) + "." + std::to_string(number) + "." + std::to_string(from) + "." +
         std::to_string(to);
}
std::string named(const char* kind, int rank) {
  return std::string(kind) + "." + std::to_string(rank);
}

// A share whose letters have their names.
struct Letters {
  struct Outgoing {
    std::string name;
    const std::byte* from = nullptr;
    size_t bytes = 0;
  };
  struct Incoming {
    std::string name;
    std::byte* to = nullptr;
    size_t bytes = 0;
  };
  bool is_sum = false;
  std::vector<Outgoing> out;
  std::vector<Incoming> in;  // by rank
};

// A sum goes to everybody, the rank itself included.
Letters address(Member& member, const Share& share) {
  Letters letters{.is_sum = share.is_sum, .out = {}, .in = {}};
  const size_t sum = share.is_sum ? member.sums++ : 0;
  for (int peer = 0; peer < member.ranks; ++peer) {
    const auto at = static_cast<size_t>(peer);
    const Slice& slice = share.slices[share.is_sum ? 0 : at];
    const char* const kind = share.is_sum ? "sum" : "rows";
    if (slice.sent > 0) {
      const size_t number = share.is_sum ? sum : member.sent[at]++;
      letters.out.push_back({letter(kind, number, member.rank, peer), slice.from, slice.sent});
    }
    if (slice.received > 0) {
      const size_t number = share.is_sum ? sum : member.received[at]++;
      letters.in.push_back({letter(kind, number, peer, member.rank), slice.to, slice.received});
    }
  }
  return letters;
}

bool all_posted(const Member& member, const Letters& letters) {
  for (const Letters::Incoming& one : letters.in) {
    if (!is_posted(member.mailbox, one.name)) return false;
  }
  return true;
}

void give(const Member& member, const Letters& letters) {
  for (const Letters::Outgoing& one : letters.out) {
    post(member.mailbox, one.name, Bytes(one.from, one.from + one.bytes));
  }
}

void add(Bytes& total, const Bytes& more) {
  for (size_t at = 0; at < total.size(); at += sizeof(float)) {
    float sum = 0;
    float value = 0;
    std::memcpy(&sum, total.data() + at, sizeof sum);
    std::memcpy(&value, more.data() + at, sizeof value);
    sum += value;
    std::memcpy(total.data() + at, &sum, sizeof sum);
  }
}

void get(const Member& member, const Letters& letters) {
  Bytes total;
  for (const Letters::Incoming& one : letters.in) {
    Bytes bytes = take(member.mailbox, one.name);
    if (bytes.size() != one.bytes) die(one.name + ": a rank receives other than what was sent");
    if (!letters.is_sum) {
      std::memcpy(one.to, bytes.data(), bytes.size());
    } else if (total.empty()) {
      total = std::move(bytes);
    } else {
      add(total, bytes);
    }
  }
  if (letters.is_sum && !total.empty()) {
    std::memcpy(letters.in.front().to, total.data(), total.size());
  }
}

}  // namespace

void queue(const std::shared_ptr<Member>& member, const Share& share) {
  const auto letters = std::make_shared<const Letters>(address(*member, share));
  ++member->unfinished;
  cuda_emulator::enqueue(member->stream, [member, letters] {
    if (!member->aborted) give(*member, *letters);
  });
  const auto ready = [member, letters] { return member->aborted || all_posted(*member, *letters); };
  cuda_emulator::enqueue_when(member->stream, ready, [member, letters] {
    --member->unfinished;
    if (member->aborted) return;
    if (!all_posted(*member, *letters)) die("somebody waits without a bound for a peer");
    get(*member, *letters);
  });
}

void arrive(const Member& member, const std::string& gpu) {
  const auto* const begin = reinterpret_cast<const std::byte*>(gpu.data());
  post(member.mailbox, named("here", member.rank), Bytes(begin, begin + gpu.size()));
}

bool all_joined(const Member& member) {
  for (int peer = 0; peer < member.ranks; ++peer) {
    if (!is_posted(member.mailbox, named("here", peer))) return false;
  }
  return true;
}

std::string gpu_of(const Member& member, int peer) {
  const Bytes gpu = read_message(member.mailbox, named("here", peer));
  return {reinterpret_cast<const char*>(gpu.data()), gpu.size()};
}

void leave(const Member& member) {
  post(member.mailbox, named("gone", member.rank), {});
  for (int peer = 0; peer < member.ranks; ++peer) {
    if (!is_posted(member.mailbox, named("gone", peer))) return;
  }
  remove_mailbox(member.mailbox);
}

void Progress::run(const std::stop_token& stop) {
  std::unique_lock hold(cuda_emulator::lock());
  const auto has_work = [this] { return member_->unfinished > 0; };
  while (queued_.wait(hold, stop, has_work) && !stop.stop_requested()) {
    if (cuda_emulator::device().streams.contains(member_->stream)) {
      cuda_emulator::nudge(member_->stream);
    }
    hold.unlock();
    std::this_thread::sleep_for(kPeerPollInterval);
    hold.lock();
  }
}

}  // namespace nccl_double
