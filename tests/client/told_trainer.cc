// A trainer that follows commands: told_trainer SOCKET. Each line on stdin is a command, and gets
// one line of answer on stdout. A test stops or kills the trainer between any two commands.
//
//   join RANK      joined LINEAGE [RESUME_LINEAGE RESUME_STEP]
//   restore        restored LINEAGE:STEP ...   the resume point's version of every unit; its bytes
//                                              were compared with what that version must hold
//   begin STEP     ok         slabs are leased
//   write PART     ok         this rank's fragments of the first unit (first) or the others (rest)
//   end            ok         the last slab is handed over
//   wait           durable    or: failed REASON
//   leave          ok         and it exits
#include <cstdio>
#include <iostream>
#include <optional>
#include <sstream>

#include "tests/client/told_model.h"

namespace ckpt::test {
namespace {

constexpr uint32_t kTimeoutMs = 60'000;

class ToldTrainer {
 public:
  explicit ToldTrainer(client::Session session) : session_(std::move(session)) {}

  client::Outcome<std::string> join(uint32_t rank) {
    client::JoinOptions options;
    options.rank = rank;
    options.size = told::kRanks;
    snapshot_.reset();
    auto joined = session_.join(options);
    if (!joined) return joined.error();
    epoch_ = *joined;
    std::string answer = "joined " + std::to_string(epoch_.lineage);
    if (epoch_.resume) {
      answer += " " + std::to_string(epoch_.resume->lineage);
      answer += " " + std::to_string(epoch_.resume->step);
    }
    return answer;
  }

  client::Outcome<std::string> restore() {
    if (!epoch_.resume) return client::Error{CKPT_E_NOT_FOUND, "there is no resume point"};
    const auto units = told::units();
    std::vector<std::vector<char>> into;
    std::vector<ckpt_range> ranges;
    for (const client::UnitInfo& unit : units) into.emplace_back(unit.bytes);
    for (uint32_t unit = 0; unit < into.size(); ++unit) {
      ranges.push_back({unit, 0, into[unit].size(), into[unit].data()});
    }
    client::RestoreOptions options;
    options.lineage = epoch_.resume->lineage;
    options.step = epoch_.resume->step;
    options.exact = true;
    const auto restored = session_.restore(options, ranges);
    if (!restored) return restored.error();
    std::string answer = "restored";
    for (uint32_t unit = 0; unit < into.size(); ++unit) {
      const auto [lineage, step] = (*restored)[unit].version;
      if (into[unit] != told::content(unit, lineage, step)) {
        return client::Error{CKPT_E_CORRUPT, units[unit].name + ": other bytes than were saved"};
      }
      answer += " " + std::to_string(lineage) + ":" + std::to_string(step);
    }
    return answer;
  }

  client::Outcome<std::string> begin(uint64_t step) {
    plan_ = told::plan(step);
    auto begun = session_.begin(plan_);
    if (!begun) return begun.error();
    snapshot_.emplace(std::move(begun).value());
    return std::string("ok");
  }

  client::Outcome<std::string> write(bool first) {
    for (const ckpt_fragment& fragment : plan_.fragments) {
      if (fragment.rank != epoch_.rank || (fragment.unit == 0) != first) continue;
      const std::vector<char> bytes = told::content(fragment.unit, epoch_.lineage, plan_.step);
      auto written = snapshot_->write(fragment.unit, fragment.offset,
                                      bytes.data() + fragment.offset, fragment.length);
      if (!written) return written.error();
    }
    return std::string("ok");
  }

  client::Outcome<std::string> done(const client::Outcome<void>& outcome, const char* answer) {
    if (!outcome) return outcome.error();
    return std::string(answer);
  }

  client::Outcome<std::string> obey(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    std::string argument;
    words >> command >> argument;
    if (command == "join") return join(static_cast<uint32_t>(std::stoul(argument)));
    if (command == "restore") return restore();
    if (command == "begin") return begin(std::stoull(argument));
    if (command == "leave") return done(session_.leave(), "ok");
    if (!snapshot_) return client::Error{CKPT_E_FAILED_PRECONDITION, command + ": no snapshot"};
    if (command == "write") return write(argument == "first");
    if (command == "end") return done(snapshot_->end(), "ok");
    if (command == "wait") {
      return done(snapshot_->wait(CKPT_LEVEL_DURABLE, kTimeoutMs), "durable");
    }
    return client::Error{CKPT_E_INVALID_ARGUMENT, "unknown command " + line};
  }

 private:
  client::Session session_;
  client::Epoch epoch_;
  client::SnapshotOptions plan_;
  std::optional<client::Snapshot> snapshot_;
};

int run(const char* socket) {
  client::OpenOptions options;
  options.socket = socket;
  options.run = told::kRun;
  options.arena_bytes = told::kArenaBytes;
  options.slab_bytes = told::kSlabBytes;
  auto session = client::Session::open(options);
  if (!session) {
    std::cerr << session.error().message << std::endl;
    return 1;
  }
  if (const auto known = session->register_units(told::units()); !known) {
    std::cerr << known.error().message << std::endl;
    return 1;
  }
  ToldTrainer trainer(std::move(session).value());
  for (std::string line; std::getline(std::cin, line);) {
    const auto answer = trainer.obey(line);
    std::cout << (answer ? *answer : "failed " + answer.error().message) << std::endl;
    if (line == "leave") break;
  }
  return 0;
}

}  // namespace
}  // namespace ckpt::test

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "told_trainer SOCKET" << std::endl;
    return 2;
  }
  return ckpt::test::run(argv[1]);
}
