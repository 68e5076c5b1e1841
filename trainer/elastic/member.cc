#include "trainer/elastic/member.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "formats/base/console.h"
#include "trainer/checkpoint/client_status.h"
#include "trainer/checkpoint/registration.h"
#include "trainer/elastic/epoch_watch.h"

namespace moetrain {

namespace client = ckpt::client;

using Clock = std::chrono::steady_clock;

namespace {

// Timeout of all keys of the rendezvous: peers set theirs right after the epoch has opened.
constexpr uint32_t kRendezvousTimeoutMs = 20'000;
// Ranks of a killed supervisor stay in the group until the kernel has closed their sockets. A
// supervisor that starts right afterwards waits this long for that.
constexpr std::chrono::milliseconds kOtherJobEnds{2'000};
constexpr uint32_t kOtherJobPollMs = 100;

uint32_t ms_until(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
  return static_cast<uint32_t>(std::max<int64_t>(left.count(), 1));
}

std::string rank_list(const std::vector<uint32_t>& ranks) {
  std::string text;
  for (const uint32_t rank : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  return text;
}

}  // namespace

Result<Member> Member::open(const RankOptions& options, const std::vector<StateUnit>& units,
                            const Share& share) {
  const bool memory_level = options.partial.k_snapshot != 0;
  const ArenaSize arena = arena_size(share.bytes, memory_level);
  client::OpenOptions open;
  open.socket = options.socket;
  open.run = options.run;
  open.client_name = fmt::format("moetrain rank {}", options.rank);
  open.arena_bytes = arena.arena_bytes;
  open.slab_bytes = arena.slab_bytes;
  open.timeout_ms = options.open_timeout_ms;
  auto patience = std::make_unique<DaemonPatience>();
  patience->set_options(open);
  open.waiting = [&options](const std::string& why) {
    ckpt::base::print_stderr("moetrain: run {} rank {} waits for room, at most {} s: {}\n",
                             options.run, options.rank, options.open_timeout_ms / 1000, why);
  };
  Result<client::Session> opened = to_result(client::Session::open(open));
  if (!opened.ok() && options.elastic) {
    return ckpt::make_error(
        opened.error().code, "{}{}", opened.error().message,
        restart_remedy(opened.error(), arena.arena_bytes,
                       arena_size(share.restart_bytes, memory_level).arena_bytes));
  }
  CKPT_ASSIGN(client::Session session, std::move(opened));
  patience->follow(session);
  const Status registered = to_status(session.register_units(
      registration(units), to_json(options.config), options.open_timeout_ms));
  if (registered.ok()) return Member(options, std::move(patience), std::move(session));
  return registration_refused(options.run, registered.error());
}

Result<client::Epoch> Member::join(bool has_state) {
  // Processes that joined later have numbers beyond the first epoch's ranks.
  client::JoinOptions join{.rank = options_->rank % options_->ranks, .size = options_->ranks};
  join.elastic = options_->elastic;
  join.member = options_->rank;
  join.grace_ms = options_->grace_ms;
  join.job = options_->job;
  join.resume = CKPT_RESUME_CONTINUE;
  if (!joined_before_) {
    join.resume = static_cast<ckpt_resume>(options_->resume);
    join.resume_step = options_->resume_step;
    join.resume_lineage = options_->resume_lineage;
  }
  if (next_view_) {
    // The group may have lost or gained ranks since the start.
    join.rank = epoch_rank_;
    join.size = epoch_size_;
    if (next_view_->view) {
      join.resume = CKPT_RESUME_AT_STEP;
      join.resume_lineage = next_view_->view->lineage;
      join.resume_step = next_view_->view->step;
    }
  } else if (has_state && options_->elastic) {
    join.resume = CKPT_RESUME_GO_ON;
  }
  join.timeout_ms = options_->join_timeout_ms;
  // Only rank 0 prints the reason; all ranks wait for the same join.
  if (join.rank == 0) {
    join.waiting = [this](const std::string& why) {
      ckpt::base::print_stderr("moetrain: run {} waits for its ranks to join, at most {} s: {}\n",
                               options_->run, options_->join_timeout_ms / 1000, why);
    };
  }
  Result<client::Epoch> epoch = join_after_other_job(join);
  if (epoch.ok()) {
    joined_before_ = true;
    next_view_.reset();
    epoch_rank_ = epoch->rank;
    epoch_size_ = epoch->size;
  }
  if (!epoch.ok() && join.resume == CKPT_RESUME_START) {
    epoch = start_refused(options_->run, epoch.error());
  }
  if (epoch.ok() || epoch.error().code != ckpt::ErrorCode::kDeadlineExceeded) return epoch;
  return ckpt::make_error(epoch.error().code, "ckptd at {}: waited {} s: {}", options_->socket,
                          join.timeout_ms / 1000, epoch.error().message);
}

Result<client::Epoch> Member::join_after_other_job(const client::JoinOptions& join) {
  const auto end = Clock::now() + kOtherJobEnds;
  for (;;) {
    Result<client::Epoch> epoch = to_result(session_.join(join));
    const bool held = !epoch.ok() && epoch.error().code == ckpt::ErrorCode::kAlreadyExists;
    if (!held || joined_before_ || Clock::now() >= end) return epoch;
    (void)session_.poll(kOtherJobPollMs);  // the next join reports a lost session
  }
}

Result<Member::Group> Member::connect(const client::Epoch& epoch, Device& device) {
  nccl_tries_.epoch_opened(lost_member(epoch));
  CKPT_ASSIGN(Group group, connect_first(epoch, device));
  // All ranks have the same options. The thread's data lies in host memory, also with a GPU.
  const bool overlaps =
      options_->expert_state == ExpertState::kSharded && options_->schedule.overlaps();
  if (!overlaps || epoch.size == 1) return group;
  CKPT_ASSIGN(std::unique_ptr<Comm> second, make_gloo_comm(gloo_options(epoch, "beside/")));
  group.comm = with_comm_thread(std::move(group.comm), std::move(second));
  return group;
}

GlooOptions Member::gloo_options(const client::Epoch& epoch, const std::string& lane) {
  // The daemon keeps keys per epoch; the epoch in the key is for readers of logs.
  const auto named = [prefix = fmt::format("comm/{}/{}", epoch.epoch, lane)](
                         const std::string& key) { return prefix + key; };
  GlooOptions options{.rank = epoch.rank, .size = epoch.size};
  options.timeout_ms = options_->collective_timeout_ms;
  options.rendezvous.set = [this, named](const std::string& key, const std::vector<char>& value) {
    return to_status(session_.kv_set(named(key), std::string(value.begin(), value.end())));
  };
  const auto end = Clock::now() + std::chrono::milliseconds(kRendezvousTimeoutMs);
  options.rendezvous.get = [this, named, end](const std::string& key) -> Result<std::vector<char>> {
    CKPT_ASSIGN(const std::string value, to_result(session_.kv_get(named(key), ms_until(end))));
    return std::vector<char>(value.begin(), value.end());
  };
  options.interrupted = [this] {
    poll();
    return epoch_over();
  };
  return options;
}

Result<Member::Group> Member::connect_first(const client::Epoch& epoch, Device& device) {
  const GlooOptions options = gloo_options(epoch, "");
  CKPT_ASSIGN(std::unique_ptr<Comm> host, make_gloo_comm(options));
  // All ranks have the same kind of device: on a CPU there is nothing to agree on.
  if (device.is_host()) return Group{std::move(host), {}};
  CKPT_ASSIGN(const DeviceCollectives collectives, agree(*host, device));
  if (!collectives.nccl) return Group{std::move(host), collectives};
  CKPT_ASSIGN(std::unique_ptr<Comm> nccl,
              connect_nccl(std::move(host), {.device = &device,
                                             .rendezvous = options.rendezvous,
                                             .interrupted = options.interrupted,
                                             .connect_timeout_ms = kRendezvousTimeoutMs,
                                             .timeout_ms = options_->collective_timeout_ms}));
  return Group{std::move(nccl), collectives};
}

void Member::group_failed() {
  poll();
  const auto lost = session_.epoch_ended();
  lost_a_peer_ = lost && !lost->empty();
}

// True if a rank was lost: counted by survivors if they continue, else reported by ckptd.
bool Member::lost_member(const client::Epoch& epoch) {
  const uint32_t before = std::exchange(group_size_, epoch.size);
  const bool lost_a_peer = std::exchange(lost_a_peer_, false);
  if (!epoch.goes_on) return lost_a_peer;
  const auto stayed =
      std::ranges::count_if(epoch.previous_ranks, [](int32_t previous) { return previous >= 0; });
  return static_cast<uint32_t>(stayed) < before;
}

Result<DeviceCollectives> Member::agree(Comm& host, Device& device) {
  if (nccl_tries_.exhausted() && no_nccl_.empty()) {
    no_nccl_ = fmt::format("it has failed {} times in a row, though nobody was lost; at last: {}",
                           NcclTries::kMax, nccl_error_);
    if (!options_->elastic) {
      return ckpt::make_error(ckpt::ErrorCode::kFailedPrecondition, "NCCL: {}", no_nccl_);
    }
  }
  uint64_t gpu = kNoGpuForNccl;
  if (no_nccl_.empty()) {
    const Result<uint64_t> mine = nccl_gpu(device);
    if (mine.ok()) {
      gpu = *mine;
    } else {
      no_nccl_ = mine.error().message;
    }
  }
  // Gloo does not notice every death.
  EpochWatch watch(*this, host);
  const EpochWatch::Loan loan(watch);
  return agree_on_collectives(host, gpu);
}

Result<std::unique_ptr<Comm>> Member::connect_nccl(std::unique_ptr<Comm> host,
                                                   const NcclOptions& options) {
  nccl_tries_.begins();
  nccl_error_ = "it has connected, and no step was done";
  Result<std::unique_ptr<Comm>> nccl = make_nccl_comm(std::move(host), options);
  if (nccl.ok()) return nccl;
  nccl_error_ = nccl.error().message;
  if (!options_->elastic || nccl.error().code != ckpt::ErrorCode::kFailedPrecondition) return nccl;
  // The death of a peer can look like this. The peers learn of it as a lost group; after several
  // groups in a row without a lost rank, a group is formed without NCCL.
  return ckpt::make_error(ckpt::ErrorCode::kUnavailable, "{}", nccl_error_);
}

void Member::poll() {
  // Each poll takes a reconnecting session one step further.
  for (int i = 0; i < 4; ++i) (void)session_.poll(0);
}

std::optional<std::string> Member::epoch_over() const {
  const auto lost = session_.epoch_ended();
  if (!lost) return std::nullopt;
  if (lost->empty()) return "the epoch has ended";
  return fmt::format("lost rank {}", rank_list(*lost));
}

void Member::await_answer(uint32_t timeout_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (!answers() && Clock::now() < end) (void)session_.poll(50);
}

void Member::await_epoch_end(uint32_t timeout_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (!epoch_over() && Clock::now() < end) (void)session_.poll(50);
}

}  // namespace moetrain
