// Places against the real daemon: bytes that a copy engine writes are as durable as copied bytes.
#include <cstring>

#include "formats/base/crc32c.h"
#include "tests/client/trainers.h"

namespace ckpt::test {
namespace {

// Brings the whole state by places, the last reserved first; `between` runs when all are lent.
template <typename Between>
void save_by_places(client::Session& session, const SmallRun& run, uint64_t step, Between between) {
  auto snapshot = session.begin(run.plan(step, 1));
  ASSERT_OK(snapshot);
  struct Lent {
    client::Place place;
    std::vector<char> bytes;
  };
  std::vector<Lent> lent;
  for (uint32_t unit = 0; unit < run.unit_bytes.size(); ++unit) {
    const std::vector<char> state = run.state(step, unit);
    for (uint64_t at = 0; at < state.size();) {
      const auto place = snapshot->reserve(unit, at, std::min<uint64_t>(state.size() - at, 90'000));
      ASSERT_OK(place);
      lent.push_back({*place, {state.begin() + at, state.begin() + at + place->length}});
      at += place->length;
    }
  }
  between();
  while (!lent.empty()) {
    const Lent& last = lent.back();
    std::memcpy(last.place.data, last.bytes.data(), last.bytes.size());
    const uint32_t crc = ckpt_crc32c(last.bytes.data(), last.bytes.size(), 0);
    ASSERT_OK(snapshot->filled(last.place.id, crc));
    lent.pop_back();
  }
  ASSERT_OK(snapshot->end());
  ASSERT_OK(snapshot->wait(CKPT_LEVEL_DURABLE, 60'000));
}

TEST(PlacesDaemon, FilledPlacesSurviveDaemonRestart) {
  DaemonProcess daemon;
  const SmallRun run;
  auto session = open_trainer(daemon, run);
  ASSERT_OK(session);
  ASSERT_OK(session->join(as_rank(0, 1)));
  save_by_places(*session, run, 1, [] {});
  expect_state(*session, run, 1);
  save_by_places(*session, run, 2, [&] { daemon.crash_and_restart(); });
  expect_state(*session, run, 2);
  EXPECT_EQ(daemon.stop(), 0);
}

TEST(PlacesDaemon, WrongChecksumIsNeverCommitted) {
  DaemonProcess daemon;
  const SmallRun run;
  auto session = open_trainer(daemon, run);
  ASSERT_OK(session);
  ASSERT_OK(session->join(as_rank(0, 1)));
  const auto plan = run.plan(1, 1);
  auto snapshot = session->begin(plan);
  ASSERT_OK(snapshot);
  const std::vector<char> first = run.state(1, 0);
  const auto place = snapshot->reserve(0, 0, 1000);
  ASSERT_OK(place);
  std::memcpy(place->data, first.data(), 1000);
  const auto crc = base::crc32c(std::as_bytes(std::span(first).first(1000)));
  ASSERT_OK(snapshot->filled(place->id, crc ^ 1));
  ASSERT_OK(snapshot->write(0, 1000, first.data() + 1000, first.size() - 1000));
  for (uint32_t unit = 1; unit < run.unit_bytes.size(); ++unit) {
    const std::vector<char> bytes = run.state(1, unit);
    ASSERT_OK(snapshot->write(unit, 0, bytes.data(), bytes.size()));
  }
  ASSERT_OK(snapshot->end());
  const auto failed = snapshot->wait(CKPT_LEVEL_DURABLE, 60'000);
  ASSERT_FALSE(failed);
  EXPECT_EQ(snapshot->info().failure, CKPT_E_CORRUPT) << failed.error().message;
}

}  // namespace
}  // namespace ckpt::test
