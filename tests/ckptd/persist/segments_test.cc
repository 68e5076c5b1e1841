// Segment files created off the loop: requests that wait for a file, and the free space reported
// meanwhile.
#include "ckptd/persist/segments.h"

#include <gtest/gtest.h>

#include <deque>
#include <optional>

#include "ckptd/io/memory_disk.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;

// Does the work at once, and tells of it when reaped: what lies between the two is under test.
class HalfwayExecutor final : public Executor {
 public:
  void run(std::function<void()> work, std::function<void()> then) override {
    work();
    done_.push_back(std::move(then));
  }
  size_t reap() override {
    size_t count = 0;
    for (; !done_.empty(); ++count) {
      const auto then = std::move(done_.front());
      done_.pop_front();
      then();
    }
    return count;
  }
  void wait() override {}
  int event_fd() const override { return -1; }
  size_t outstanding() const override { return done_.size(); }

 private:
  std::deque<std::function<void()>> done_;
};

constexpr uint64_t kSegment = 1 << 20;
constexpr uint64_t kExtent = 64 << 10;

class SegmentsTest : public testing::Test {
 protected:
  explicit SegmentsTest(uint64_t capacity = 8 * kSegment) : disk_({.capacity_bytes = capacity}) {}
  ~SegmentsTest() override {
    on_made_ = [] {};  // that of the test belongs to its frame
    settle();
    segments_.close();
  }
  void settle() {
    while (executor_.outstanding() > 0 || disk_.in_flight() > 0) {
      executor_.reap();
      disk_.wait();
      disk_.reap();
    }
  }
  uint64_t free_bytes() { return disk_.space().value().free_bytes; }
  uint64_t there() { return free_bytes() + segments_.unplaced_bytes(free_bytes()); }

  MemoryDisk disk_;
  HalfwayExecutor executor_;
  std::function<void()> on_made_ = [] {};
  Segments segments_{disk_,
                     executor_,
                     {.store = {}, .segment_bytes = kSegment, .reserve_bytes = kSegment / 2},
                     [](Segment&) {},
                     [this] { on_made_(); }};
};

TEST_F(SegmentsTest, NextSegmentIsCreatedAhead) {
  EXPECT_FALSE(segments_.place(kExtent).value().has_value());
  EXPECT_TRUE(segments_.making());
  size_t made = 0;
  on_made_ = [&] { ++made; };
  settle();
  EXPECT_EQ(made, 1u);
  const auto first = segments_.place(kExtent).value();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->offset, ckpt::kBlockBytes);
  while (!segments_.making()) ASSERT_TRUE(segments_.place(kExtent).value().has_value());
  EXPECT_GT(first->segment->used, kSegment / 2);
  settle();
  for (size_t i = 0; i < kSegment / kExtent; ++i) {
    ASSERT_TRUE(segments_.place(kExtent).value().has_value()) << "nobody waits any more";
  }
  EXPECT_FALSE(segments_.all().empty());
}

TEST_F(SegmentsTest, SegmentBeingCreatedCountsAsFreeSpace) {
  const uint64_t before = there();
  segments_.prepare_ahead();
  ASSERT_TRUE(segments_.making());
  EXPECT_EQ(free_bytes(), before - kSegment) << "it has been preallocated already";
  EXPECT_EQ(there(), before);
  settle();
  EXPECT_EQ(there(), before - ckpt::kBlockBytes) << "its header is all it cost";
}

class NearlyFullTest : public SegmentsTest {
 protected:
  NearlyFullTest() : SegmentsTest(kSegment + kSegment / 4) {}
};

TEST_F(NearlyFullTest, CreatesSegmentsOnDemandAtMinimalSize) {
  segments_.prepare_ahead();
  EXPECT_FALSE(segments_.making()) << "what is to be left free would be taken";
  EXPECT_FALSE(segments_.place(kExtent).value().has_value());
  settle();
  const auto place = segments_.place(kExtent).value();
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->segment->bytes, ckpt::kBlockBytes + kExtent);
}

TEST_F(NearlyFullTest, FailureDoesNotHitSmallerRequest) {
  constexpr uint64_t kTooMuch = 2 * kSegment;
  EXPECT_FALSE(segments_.place(kTooMuch).value().has_value());
  // The large request is gone when the failure arrives, and another request is first in the queue.
  std::optional<ckpt::Error> error;
  bool came = false;
  on_made_ = [&] {
    if (std::exchange(came, true)) return;
    const auto place = segments_.place(kExtent);
    if (!place.ok()) error = place.error();
  };
  settle();
  EXPECT_TRUE(came);
  EXPECT_FALSE(error.has_value());
  EXPECT_TRUE(segments_.place(kExtent).value().has_value());
}

TEST_F(NearlyFullTest, WaitingRequestGetsTheError) {
  constexpr uint64_t kTooMuch = 2 * kSegment;
  EXPECT_FALSE(segments_.place(kTooMuch).value().has_value());
  std::optional<ErrorCode> code;
  on_made_ = [&] {
    const auto place = segments_.place(kTooMuch);
    if (!place.ok()) code = place.error().code;
  };
  settle();
  EXPECT_EQ(code, ErrorCode::kResourceExhausted);
  EXPECT_FALSE(segments_.making());
}

}  // namespace
}  // namespace ckptd
