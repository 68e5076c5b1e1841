// The guarantees of comm.h: the same tests for every transport.
#include "trainer/comm/comm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <future>
#include <random>
#include <thread>

#include "tests/trainer/comm/comm_groups.h"

namespace moetrain {
namespace {

using ckpt::ErrorCode;
using std::chrono::seconds;
using std::chrono::steady_clock;

class CommTest : public testing::TestWithParam<CommKind> {
 protected:
  std::vector<std::unique_ptr<Comm>> make(uint32_t size, uint32_t timeout_ms = 30'000) {
    return make_comms(GetParam(), size, timeout_ms);
  }
};

// Values whose sum depends on the order of addition.
std::vector<float> rough_values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> mantissa(-1.0f, 1.0f);
  std::uniform_int_distribution<int> exponent(-20, 20);
  std::vector<float> values(count);
  for (float& value : values) value = std::ldexp(mantissa(random), exponent(random));
  return values;
}

std::vector<float> sum_in_order_of_rank(size_t count, uint32_t size) {
  std::vector<float> sum = rough_values(count, 0);
  for (uint32_t r = 1; r < size; ++r) {
    const std::vector<float> more = rough_values(count, r);
    for (size_t i = 0; i < count; ++i) sum[i] += more[i];
  }
  return sum;
}

std::vector<uint32_t> bits(std::span<const float> values) {
  std::vector<uint32_t> result;
  for (float value : values) result.push_back(std::bit_cast<uint32_t>(value));
  return result;
}

TEST_P(CommTest, SumsExactlyInRankOrder) {
  for (uint32_t size : {1u, 2u, 3u, 4u}) {
    auto comms = make(size);
    // Below, at and above the size from which a buffer is cut; fewer values than ranks; none.
    for (size_t count : {0, 1, 3, 1023, 1024, 1025, 70'001}) {
      const auto expected = bits(sum_in_order_of_rank(count, size));
      on_all_ranks(comms, [&](Comm& comm) {
        std::vector<float> values = rough_values(count, comm.rank());
        ASSERT_TRUE(comm.all_reduce_sum(std::span(values)).ok());
        EXPECT_EQ(bits(values), expected) << "rank " << comm.rank() << " count " << count;
      });
    }
  }
}

TEST_P(CommTest, CuttingABufferIntoBucketsChangesNoBit) {
  auto comms = make(3);
  constexpr size_t kCount = 20'000;
  const auto expected = bits(sum_in_order_of_rank(kCount, 3));
  on_all_ranks(comms, [&](Comm& comm) {
    std::vector<float> values = rough_values(kCount, comm.rank());
    for (size_t begin = 0; begin < kCount; begin += 3'333) {
      const size_t count = std::min<size_t>(3'333, kCount - begin);
      ASSERT_TRUE(comm.all_reduce_sum(std::span(values).subspan(begin, count)).ok());
    }
    EXPECT_EQ(bits(values), expected);
  });
}

TEST_P(CommTest, ReducesIntegersAndDoubles) {
  auto comms = make(4);
  on_all_ranks(comms, [&](Comm& comm) {
    const int64_t r = comm.rank();
    std::vector<int64_t> sum = {r, 10 * r, -r};
    ASSERT_TRUE(comm.all_reduce_sum(std::span(sum)).ok());
    EXPECT_THAT(sum, testing::ElementsAre(6, 60, -6));
    std::vector<int64_t> most = {r, -r};
    ASSERT_TRUE(comm.all_reduce_max(std::span(most)).ok());
    EXPECT_THAT(most, testing::ElementsAre(3, 0));
    std::vector<double> doubles = {0.5 * static_cast<double>(r)};
    ASSERT_TRUE(comm.all_reduce_sum(std::span(doubles)).ok());
    EXPECT_THAT(doubles, testing::ElementsAre(3.0));
  });
}

// How many values `from` sends to `to`: uneven, with zeros, also to itself.
int64_t count_between(uint32_t from, uint32_t to) { return (from * 7 + to * 3) % 5 * 400; }

template <typename T>
void check_all_to_all(Comm& comm) {
  std::vector<T> send;
  std::vector<T> expected;
  std::vector<int64_t> send_counts;
  std::vector<int64_t> recv_counts;
  for (uint32_t peer = 0; peer < comm.size(); ++peer) {
    send_counts.push_back(count_between(comm.rank(), peer));
    recv_counts.push_back(count_between(peer, comm.rank()));
    for (int64_t i = 0; i < send_counts.back(); ++i) {
      send.push_back(static_cast<T>(comm.rank() * 100'000 + peer * 10'000 + i));
    }
    for (int64_t i = 0; i < recv_counts.back(); ++i) {
      expected.push_back(static_cast<T>(peer * 100'000 + comm.rank() * 10'000 + i));
    }
  }
  std::vector<T> recv(expected.size());
  ASSERT_TRUE(comm.all_to_all_v(std::span<const T>(send), send_counts, recv, recv_counts).ok());
  EXPECT_EQ(recv, expected) << "rank " << comm.rank();
}

TEST_P(CommTest, ExchangesUnevenCounts) {
  auto comms = make(4);
  on_all_ranks(comms, [&](Comm& comm) {
    check_all_to_all<float>(comm);
    check_all_to_all<int64_t>(comm);
  });
}

// A rank with nothing to exchange in one collective must not confuse it with the next one.
TEST_P(CommTest, RankWithEmptyExchangeStaysSynchronized) {
  auto comms = make(3, 5'000);
  on_all_ranks(comms, [](Comm& comm) {
    std::vector<int64_t> counts(3);
    if (comm.rank() < 2) counts[1 - comm.rank()] = 1;
    const std::vector<int64_t> send(comm.rank() < 2 ? 1 : 0, comm.rank());
    std::vector<int64_t> recv(send.size());
    ASSERT_TRUE(comm.all_to_all_v(send, counts, std::span(recv), counts).ok());
    ASSERT_TRUE(comm.barrier().ok());
    std::vector<int64_t> ones = {1};
    ASSERT_TRUE(comm.all_reduce_sum(std::span(ones)).ok());
    EXPECT_EQ(ones[0], 3);
  });
}

TEST_P(CommTest, GathersAndBroadcasts) {
  auto comms = make(3);
  on_all_ranks(comms, [&](Comm& comm) {
    const std::vector<int64_t> mine = {comm.rank(), 7};
    std::vector<int64_t> all(6);
    ASSERT_TRUE(comm.all_gather(mine, all).ok());
    EXPECT_THAT(all, testing::ElementsAre(0, 7, 1, 7, 2, 7));
    for (uint32_t root = 0; root < 3; ++root) {
      std::vector<float> values(5'000, static_cast<float>(comm.rank()));
      ASSERT_TRUE(comm.broadcast(std::span(values), root).ok());
      EXPECT_THAT(values, testing::Each(static_cast<float>(root)));
      std::vector<int64_t> numbers = {comm.rank()};
      ASSERT_TRUE(comm.broadcast(std::span(numbers), root).ok());
      EXPECT_EQ(numbers[0], root);
    }
  });
}

TEST_P(CommTest, BarrierReleasesRanksOnlyAfterAllEnter) {
  auto comms = make(4);
  std::atomic<int> entered = 0;
  on_all_ranks(comms, [&](Comm& comm) {
    for (int round = 1; round <= 20; ++round) {
      ++entered;
      ASSERT_TRUE(comm.barrier().ok());
      EXPECT_GE(entered.load(), 4 * round);
    }
  });
}

// Rank 1 works before each barrier, so sooner or later rank 0 has waited longer than rank 1.
TEST_P(CommTest, CountsWaitsForSlowerRank) {
  constexpr int kRoundsMax = 200;
  auto comms = make(2);
  on_all_ranks(comms, [&](Comm& comm) {
    EXPECT_EQ(comm.waited_ns(), 0);
    std::vector<int64_t> waited(2);
    int rounds = 0;
    for (; waited[0] <= waited[1] && rounds < kRoundsMax; ++rounds) {
      const auto busy_until = steady_clock::now() + std::chrono::milliseconds(5);
      while (comm.rank() == 1 && steady_clock::now() < busy_until) {
      }
      ASSERT_TRUE(comm.barrier().ok());
      const int64_t mine = comm.waited_ns();
      ASSERT_TRUE(comm.all_gather(std::span(&mine, 1), waited).ok());
    }
    EXPECT_LT(rounds, kRoundsMax) << waited[0] << " ns and " << waited[1] << " ns";
    EXPECT_GE(comm.waited_ns(), waited[comm.rank()]) << "it only grows";
  });
}

TEST_P(CommTest, AbortFromAnotherThreadUnblocksAndSticks) {
  auto comms = make(2);
  std::promise<void> waiting;
  auto blocked = std::async(std::launch::async, [&] {
    std::vector<float> values(100'000);
    waiting.set_value();
    return comms[0]->all_reduce_sum(std::span(values));  // rank 1 never comes
  });
  waiting.get_future().wait();
  comms[0]->abort("epoch 3 ended");
  ASSERT_EQ(blocked.wait_for(seconds(20)), std::future_status::ready);
  const Status status = blocked.get();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kAborted);
  EXPECT_THAT(status.error().message, testing::HasSubstr("epoch 3 ended"));
  const Status later = comms[0]->barrier();
  ASSERT_FALSE(later.ok());
  EXPECT_EQ(later.error().code, ErrorCode::kAborted);
  EXPECT_THAT(later.error().message, testing::HasSubstr("epoch 3 ended"));
}

TEST_P(CommTest, LostPeerFailsAllRanksBeforeTimeout) {
  auto comms = make(3, /*timeout_ms=*/600'000);
  const auto begin = steady_clock::now();
  on_all_ranks(comms, [&](Comm& comm) {
    const uint32_t rank = comm.rank();
    ASSERT_TRUE(comm.barrier().ok());
    if (rank == 2) {
      comms[2].reset();
      return;
    }
    // Rank 0 waits for the dead rank, and rank 1 only for rank 0, which takes it along.
    std::vector<int64_t> values = {1};
    const Status status = comm.broadcast(std::span(values), rank == 0 ? 2 : 0);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kAborted) << status.error().message;
  });
  EXPECT_LT(steady_clock::now() - begin, seconds(60));
}

TEST_P(CommTest, HangingPeerFailsWithDeadlineExceeded) {
  auto comms = make(2, /*timeout_ms=*/50);
  const Status status = comms[0]->barrier();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kDeadlineExceeded) << status.error().message;
  EXPECT_THAT(status.error().message, testing::HasSubstr("barrier"));
}

TEST_P(CommTest, FailedCollectiveNoLongerUsesBuffers) {
  // No thread writes to a receive buffer after the call has returned (asan watches).
  for (int round = 0; round < 10; ++round) {
    auto comms = make(3);
    on_all_ranks(comms, [&](Comm& comm) {
      if (comm.rank() == 0) comm.abort("test");
      auto values = std::make_unique<std::vector<float>>(200'000);
      EXPECT_FALSE(comm.all_reduce_sum(std::span(*values)).ok());
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, CommTest, testing::Values(CommKind::kLocal, CommKind::kGloo),
                         [](const auto& kind) { return comm_kind_name(kind.param); });

TEST(GlooCommTest, ReturnsErrorOfRendezvous) {
  GlooOptions options;
  options.size = 2;
  options.rendezvous.set = [](const std::string&, const std::vector<char>&) { return Status(); };
  options.rendezvous.get = [](const std::string&) -> Result<std::vector<char>> {
    return ckpt::make_error(ErrorCode::kAborted, "epoch 4 ended: rank 1 is gone");
  };
  const auto comm = make_gloo_comm(options);
  ASSERT_FALSE(comm.ok());
  EXPECT_EQ(comm.error().code, ErrorCode::kAborted);
  EXPECT_THAT(comm.error().message, testing::HasSubstr("epoch 4 ended"));
}

// The peer published its address and died before it connected. Of two ranks, the one with the
// greater address connects. Rank 0 has the smaller one and waits for a connection that never comes.
TEST(GlooCommTest, InterruptedConnectStopsBeforeTimeout) {
  std::vector<char> of_rank_0;
  GlooOptions options{.rank = 0, .size = 2};
  options.connect_timeout_ms = 600'000;
  options.rendezvous.set = [&](const std::string&, const std::vector<char>& value) {
    of_rank_0 = value;
    return Status();
  };
  options.rendezvous.get = [&](const std::string&) -> Result<std::vector<char>> {
    // The same address with the greatest port there is: rank 0 is the side that listens.
    std::vector<char> of_rank_1 = of_rank_0;
    of_rank_1[2] = of_rank_1[3] = '\xff';
    return of_rank_1;
  };
  int asked = 0;
  options.interrupted = [&]() -> std::optional<std::string> {
    if (++asked < 3) return std::nullopt;
    return "epoch 4 ended: lost rank 1";
  };
  const auto comm = make_gloo_comm(options);
  ASSERT_FALSE(comm.ok());
  EXPECT_EQ(comm.error().code, ErrorCode::kAborted);
  EXPECT_THAT(comm.error().message, testing::HasSubstr("epoch 4 ended: lost rank 1"));
}

TEST(GlooCommTest, AllConnectionsShareOneTimeout) {
  std::vector<char> of_rank_0;
  GlooOptions options{.rank = 0, .size = 5};
  options.connect_timeout_ms = 50;
  options.rendezvous.set = [&](const std::string&, const std::vector<char>& value) {
    of_rank_0 = value;
    return Status();
  };
  options.rendezvous.get = [&](const std::string&) -> Result<std::vector<char>> {
    std::vector<char> theirs = of_rank_0;
    const size_t bytes = theirs.size() / 4;
    for (size_t at = 0; at < theirs.size(); at += bytes) theirs[at + 2] = theirs[at + 3] = '\xff';
    return theirs;
  };
  const auto comm = make_gloo_comm(options);
  ASSERT_FALSE(comm.ok());
  EXPECT_EQ(comm.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(comm.error().message, testing::HasSubstr("within 50 ms"));
}

}  // namespace
}  // namespace moetrain
