// Elastic groups under random joins, deaths, hangs, failed records and daemon restarts. Members get
// their state some time after their epoch has opened.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "ckptd/group/group.h"
#include "tests/ckptd/group/actions.h"

namespace ckptd {
namespace {

using ckpt::SessionId;
using std::chrono::milliseconds;

constexpr uint32_t kFirstSize = 5;

// Simulated trainer processes, and their state as seen from outside.
class World {
 public:
  explicit World(uint32_t seed) : random_(seed), groups_(std::make_unique<Groups>()) {
    for (MemberId member = 0; member < kFirstSize; ++member) start(ResumeMode::kStart);
  }

  void step() {
    const uint32_t action = draw(100);
    if (action < 12 && processes_.size() < 9) {
      start(ResumeMode::kContinue);
    } else if (action < 22) {
      kill(any());
    } else if (action < 30) {
      const MemberId member = any();
      if (member != kNobody && processes_[member].in_epoch) processes_[member].asks = true;
    } else if (action < 34) {
      if (const MemberId member = any(); member != kNobody) processes_[member].hangs = true;
    } else if (action < 38) {
      for (auto& [member, process] : processes_) process.hangs = false;
    } else if (action < 41) {
      restart_daemon();
    } else if (action < 48) {
      if (const MemberId member = any(); member != kNobody && processes_[member].in_epoch) {
        processes_[member].has_state = true;
      }
    } else if (action < 74) {
      if (opening_) finish_opening(draw(10) > 0);
    } else if (action < 90) {
      ask(any());
    } else {
      now_ += milliseconds(400);
      execute(groups_->tick(now_));
    }
    check();
  }

  // Without further hangs and deaths all survivors must end up in one epoch.
  void settle() {
    for (auto& [member, process] : processes_) process.hangs = false;
    // A new group needs kFirstSize members, in case no survivor has the state.
    while (processes_.size() < kFirstSize) start(ResumeMode::kContinue);
    while (processes_.size() > kFirstSize) kill(processes_.rbegin()->first);
    for (int round = 0; round < 80; ++round) {
      if (round == 10) execute(groups_->rejoin_deadline_passed());
      if (round == 40) ask_again();
      for (const auto& [member, process] : std::map(processes_)) ask(member);
      if (opening_) finish_opening(true);
      now_ += milliseconds(400);
      execute(groups_->tick(now_));
      // A member of an epoch gets its state. It asks for a new epoch while others wait.
      for (auto& [member, process] : processes_) {
        process.has_state = process.has_state || process.in_epoch;
        process.asks = std::any_of(processes_.begin(), processes_.end(),
                                   [](const auto& other) { return !other.second.in_epoch; });
      }
    }
    for (const auto& [member, process] : processes_) {
      EXPECT_TRUE(process.in_epoch) << "member " << member << " was left out";
      EXPECT_EQ(process.epoch, epoch_);
    }
  }

 private:
  static constexpr MemberId kNobody = ~MemberId{0};
  struct Process {
    SessionId session = 0;
    bool in_epoch = false;   // was told of an epoch, and not of its end
    bool has_state = false;  // goes on at the next join; processes without state join anew
    bool asking = false;     // waits for an answer
    bool asks = false;       // wants the next epoch
    bool hangs = false;
    uint32_t rank = 0;
    ckpt::Epoch epoch = 0;  // the last epoch that it was in
    ResumeMode first = ResumeMode::kContinue;
  };

  uint32_t draw(uint32_t below) {
    return std::uniform_int_distribution<uint32_t>(0, below - 1)(random_);
  }
  MemberId any() {
    if (processes_.empty()) return kNobody;
    auto it = processes_.begin();
    std::advance(it, draw(static_cast<uint32_t>(processes_.size())));
    return it->first;
  }

  void start(ResumeMode resume) {
    processes_[next_member_] = {.session = next_session_++, .first = resume};
    ask(next_member_++);
  }

  void ask(MemberId member) {
    if (member == kNobody) return;
    Process& process = processes_[member];
    if (process.hangs || process.asking || (process.in_epoch && !process.asks)) return;
    process.asking = true;
    process.asks = false;
    process.in_epoch = false;
    send_join(member);
  }
  void send_join(MemberId member) {
    Process& process = processes_[member];
    // A number among the waiting processes. Only a first epoch uses it as the rank.
    uint32_t rank = 0;
    for (const auto& [other, its] : processes_) rank += other < member && !its.in_epoch ? 1 : 0;
    execute(
        groups_->join(kRun, {.session = process.session,
                             .request = member,
                             .rank = rank % kFirstSize,
                             .size = kFirstSize,
                             .resume = process.has_state ? ResumeMode::kKeepState : process.first,
                             .elastic = true,
                             .member = member,
                             .grace = milliseconds(1'000)}));
  }

  // Without a living group, ranks of a first epoch were assigned as processes came and went. The
  // waiting processes time out, as trainers do in the end, and are numbered again.
  void ask_again() {
    for (auto& [member, process] : processes_) {
      if (process.in_epoch) return;
    }
    for (auto& [member, process] : processes_) {
      process.asking = false;
      execute(groups_->leave(process.session));
    }
  }

  void kill(MemberId member) {
    if (member == kNobody) return;
    const SessionId session = processes_[member].session;
    processes_.erase(member);
    execute(groups_->lost(session, "killed"));
  }

  void restart_daemon() {
    groups_ = std::make_unique<Groups>();
    opening_.reset();
    groups_->recovered(kRun, epoch_, static_cast<uint32_t>(members_.size()), 1, members_,
                       survivors_continued_);
    for (auto& [member, process] : processes_) process.session = next_session_++;
    for (const auto& [member, process] : std::map(processes_)) {
      if (process.asking) {
        send_join(member);
      } else if (process.in_epoch &&
                 !groups_->rejoin(kRun, process.session, process.rank, process.epoch).ok()) {
        processes_[member].in_epoch = false;
      }
    }
  }

  void finish_opening(bool durable) {
    const Groups::OpenEpoch open = *opening_;
    opening_.reset();
    if (durable) {
      epoch_ = open.epoch;
      survivors_continued_ =
          open.survivors_continue || open.survivors_had_continued;  // in the record
      members_.clear();
      for (const JoinRequest& member : open.members) {
        members_.push_back(member.member);
        const auto found = processes_.find(member.member);
        if (found == processes_.end()) continue;
        found->second.in_epoch = true;
        found->second.asking = false;
        // A lost member learns here that its state does not count.
        const bool survives = open.survivors_continue && open.previous_ranks[member.rank] >= 0;
        found->second.has_state = found->second.has_state && survives;
        found->second.rank = member.rank;
        found->second.epoch = open.epoch;
      }
    }
    execute(
        groups_->opened(kRun, open.epoch, 1,
                        durable ? ckpt::Status() : ckpt::make_error(ckpt::ErrorCode::kIo, "full")));
  }

  void execute(const Groups::Actions& actions) {
    for (const Groups::Action& action : actions) {
      if (const auto* open = std::get_if<Groups::OpenEpoch>(&action)) {
        check(*open);
        opening_ = *open;
      } else if (const auto* ended = std::get_if<Groups::EndEpoch>(&action)) {
        for (auto& [member, process] : processes_) {
          const auto& remaining = ended->remaining;
          if (std::find(remaining.begin(), remaining.end(), process.session) == remaining.end()) {
            continue;
          }
          EXPECT_EQ(process.epoch, ended->epoch);
          process.in_epoch = false;
        }
      } else if (const auto* refused = std::get_if<Groups::Refuse>(&action)) {
        const auto found = processes_.find(refused->request);
        if (found != processes_.end() && found->second.session == refused->session) {
          found->second.asking = false;
        }
      }
    }
  }

  void check(const Groups::OpenEpoch& open) {
    EXPECT_FALSE(opening_.has_value()) << "one at a time";
    EXPECT_GT(open.epoch, epoch_);
    int32_t before = -1;
    bool joins = false;
    std::set<MemberId> seen;
    for (size_t rank = 0; rank < open.members.size(); ++rank) {
      const JoinRequest& member = open.members[rank];
      EXPECT_EQ(member.rank, rank);
      EXPECT_EQ(member.size, open.members.size());
      EXPECT_TRUE(seen.insert(member.member).second);
      if (!open.survivors_continue) continue;
      const int32_t previous = open.previous_ranks.at(rank);
      joins = joins || previous < 0;
      EXPECT_EQ(joins, previous < 0) << "survivors come first";
      if (previous < 0) continue;
      EXPECT_GT(previous, before) << "in the old order";
      before = previous;
      EXPECT_EQ(members_.at(static_cast<size_t>(previous)), member.member)
          << "it was in the epoch before";
      EXPECT_EQ(member.resume, ResumeMode::kKeepState);
    }
    if (open.survivors_continue) {
      EXPECT_GE(before, 0) << "somebody has the state";
      EXPECT_EQ(open.previous_size, members_.size());
    } else {
      // Former members that return together may be fewer. Any other process waits.
      const bool all_former =
          std::all_of(open.members.begin(), open.members.end(), [this](const JoinRequest& member) {
            return std::find(members_.begin(), members_.end(), member.member) != members_.end();
          });
      EXPECT_TRUE(all_former || open.members.size() == kFirstSize);
    }
  }
  void check() const {
    for (const auto& [member, process] : processes_) {
      if (!process.in_epoch) continue;
      EXPECT_EQ(process.epoch, epoch_) << "nobody trains in an epoch that is over";
      EXPECT_TRUE(groups_->member(process.session).has_value());
    }
  }

  std::mt19937 random_;
  std::unique_ptr<Groups> groups_;
  milliseconds now_{0};
  std::map<MemberId, Process> processes_;
  MemberId next_member_ = 0;
  SessionId next_session_ = 1000;
  std::optional<Groups::OpenEpoch> opening_;
  ckpt::Epoch epoch_ = 0;
  std::vector<MemberId> members_;     // of the last epoch, by rank
  bool survivors_continued_ = false;  // in the last epoch, or before it
};

TEST(ElasticGroupProperty, SurvivorsContinueInRandomHistories) {
  for (uint32_t seed = 1; seed <= 300 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    for (int i = 0; i < 150; ++i) world.step();
    world.settle();
  }
}

}  // namespace
}  // namespace ckptd
