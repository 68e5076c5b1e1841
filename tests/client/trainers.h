// Trainers in threads of the test: each rank a session of its own, as a process would have.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "tests/client/client_fixture.h"
#include "tests/support/daemon_process.h"

namespace ckpt::test {

// A small model: `units` of these sizes, each split over all ranks in proportion.
struct SmallRun {
  std::string name = "tiny";
  std::vector<uint64_t> unit_bytes = {300'000, 5, 70'000, 1'000'000};
  uint64_t arena_bytes = 8 << 20;
  uint64_t slab_bytes = 256 << 10;
  int mask = 0xff;                 // of every byte of the state
  size_t one_in = 1;               // so many bytes of the state is another at each step
  std::vector<ckpt_codec> codecs;  // of the units; none: the daemon's
  std::string dtype = "U8";        // one byte long

  std::vector<client::UnitInfo> units() const {
    std::vector<client::UnitInfo> units;
    for (size_t i = 0; i < unit_bytes.size(); ++i) {
      units.push_back(flat_unit("layers." + std::to_string(i), unit_bytes[i]));
      units.back().tensors[0].dtype = dtype;
      if (!codecs.empty()) units.back().codec = codecs.at(i);
    }
    return units;
  }
  // Rank r of n saves [bytes * r / n, bytes * (r + 1) / n) of each unit.
  client::SnapshotOptions plan(uint64_t step, uint32_t ranks) const {
    client::SnapshotOptions plan;
    plan.step = step;
    for (uint32_t unit = 0; unit < unit_bytes.size(); ++unit) {
      plan.units.push_back(unit);
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        const uint64_t begin = unit_bytes[unit] * rank / ranks;
        plan.fragments.push_back(
            {rank, unit, begin, unit_bytes[unit] * (rank + 1) / ranks - begin});
      }
    }
    return plan;
  }
  std::vector<char> state(uint64_t step, uint32_t unit) const {
    std::vector<char> bytes = random_bytes(unit_bytes[unit], step * 1000 + unit);
    const std::vector<char> same = random_bytes(unit_bytes[unit], unit);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>((i % one_in == 0 ? bytes[i] : same[i]) & mask);
    }
    return bytes;
  }
};

// `daemon`: whatever has a socket().
template <typename Daemon>
client::Outcome<client::Session> open_trainer(const Daemon& daemon, const SmallRun& run) {
  client::OpenOptions options;
  options.socket = daemon.socket();
  options.run = run.name;
  options.arena_bytes = run.arena_bytes;
  options.slab_bytes = run.slab_bytes;
  auto session = client::Session::open(options);
  if (!session) return session.error();
  if (auto done = session->register_units(run.units()); !done) return done.error();
  return session;
}

inline client::JoinOptions as_rank(uint32_t rank, uint32_t size) {
  client::JoinOptions join;
  join.rank = rank;
  join.size = size;
  return join;
}

// The rank's fragments of the plan, written in order.
inline client::Outcome<void> write_share(client::Snapshot& snapshot, const SmallRun& run,
                                         const client::SnapshotOptions& plan, uint32_t rank) {
  for (const ckpt_fragment& fragment : plan.fragments) {
    if (fragment.rank != rank || fragment.length == 0) continue;
    const std::vector<char> bytes = run.state(plan.step, fragment.unit);
    auto written = snapshot.write(fragment.unit, fragment.offset, bytes.data() + fragment.offset,
                                  fragment.length);
    if (!written) return written;
  }
  return {};
}

// Saves the whole snapshot of one rank until it is durable.
inline client::Outcome<void> save(client::Session& session, const SmallRun& run, uint64_t step,
                                  uint32_t rank, uint32_t ranks) {
  const auto plan = run.plan(step, ranks);
  auto snapshot = session.begin(plan);
  if (!snapshot) return snapshot.error();
  if (auto done = write_share(*snapshot, run, plan, rank); !done) return done;
  if (auto done = snapshot->end(); !done) return done;
  return snapshot->wait(CKPT_LEVEL_DURABLE, 60'000);
}

// Runs `rank_main` for every rank, each in its thread, and waits for all of them.
inline void run_ranks(uint32_t ranks, const std::function<void(uint32_t)>& rank_main) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank) threads.emplace_back(rank_main, rank);
  for (std::thread& thread : threads) thread.join();
}

// Restores every unit of the view and compares it with the state that was saved at the step.
inline void expect_state(client::Session& session, const SmallRun& run, uint64_t step) {
  std::vector<std::vector<char>> into;
  std::vector<ckpt_range> ranges;
  for (uint64_t bytes : run.unit_bytes) into.emplace_back(bytes);
  for (uint32_t unit = 0; unit < into.size(); ++unit) {
    ranges.push_back({unit, 0, into[unit].size(), into[unit].data()});
  }
  client::RestoreOptions options;
  options.step = step;
  const auto restored = session.restore(options, ranges);
  ASSERT_OK(restored);
  for (uint32_t unit = 0; unit < into.size(); ++unit) {
    EXPECT_EQ((*restored)[unit].version.step, step);
    EXPECT_EQ((*restored)[unit].note, "");
    EXPECT_TRUE(into[unit] == run.state(step, unit)) << "unit " << unit;
  }
}

}  // namespace ckpt::test
