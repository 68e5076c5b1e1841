// Arenas over a restart: which are taken back from a keeper, and which are rejected.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <array>
#include <random>
#include <set>

#include "ckptd/io/memory_disk.h"
#include "ckptd/staging/slab_ledger.h"
#include "ckptd/staging/staging.h"
#include "tests/ckptd/staging/small_trainer.h"
#include "tests/support/held_memory.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::LedgerTable;
using ckpt::base::UniqueFd;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kSlab = 64 << 10;
constexpr uint32_t kFirst = 2;  // first slab for snapshots; the slabs before it are for restores
constexpr uid_t kAlice = 1000;
constexpr uid_t kBob = 1001;
constexpr ckpt::base::Hash128 kStore{.low = 1, .high = 2};
const ckpt::SnapshotKey kStep5{.run = 1, .lineage = 1, .epoch = 1, .step = 5};
const ckpt::SnapshotKey kStep6{.run = 1, .lineage = 1, .epoch = 1, .step = 6};

class KeptMemoryTest : public ::testing::Test {
 protected:
  KeptMemoryTest() { restart(); }
  ~KeptMemoryTest() override { staging_->close(); }

  // Restarts as after a kill: the keeper does not notice close().
  Staging::RestoredMemory restart(uint64_t total = 64 * kSlab,
                                  const std::set<ckpt::SnapshotKey>& deleted = {}) {
    if (staging_) staging_->close();
    Staging::Options options{.arena_bytes_total = total, .restore_slabs = 2};
    options.keeper = &memory_;
    options.store = kStore;
    options.warm_pool_bytes = warm_pool_;
    options.session_bytes_default = 8 * kSlab;
    staging_ = std::make_unique<Staging>(disk_, *executor_, options);
    return staging_->restore_kept([&](const auto& key) { return !deleted.contains(key); });
  }
  SmallTrainer open(uid_t uid = kAlice, uint64_t slabs = 8) {
    const auto granted = staging_->create(uid, slabs * kSlab, kSlab).value();
    run_all(disk_, *executor_);
    EXPECT_THAT(staging_->lease(granted.arena, 100), SizeIs(slabs - 2));  // all that are for it
    return SmallTrainer(granted);
  }
  StagedSlab seal(SmallTrainer& trainer, uint32_t slab,
                  const std::vector<SmallTrainer::Piece>& pieces, uint64_t seed) {
    const auto filled = trainer.fill(slab, pieces, seed);
    return staging_->seal(trainer.arena, slab, filled.payload_bytes, filled.fragments).value();
  }
  void hold(SmallTrainer& trainer, uint32_t slab, ckpt::UnitId unit,
            const ckpt::SnapshotKey& snapshot) {
    std::vector<StagedSlab> slabs;
    slabs.push_back(seal(trainer, slab, {{unit, 5'000}, {unit + 1, 70}}, unit));
    StagedSlab::mark_held(std::move(slabs), snapshot);
  }
  void make_durable(SmallTrainer& trainer, uint32_t slab, ckpt::UnitId unit,
                    const ckpt::SnapshotKey& snapshot) {
    StagedSlab staged = seal(trainer, slab, {{unit, 5'000}}, unit);
    staged.mark_writing();
    staged.mark_durable(snapshot);
  }
  uint64_t count(SlabState state) { return staging_->stats().slabs[state]; }
  bool held(uid_t uid, ckpt::UnitId unit) {
    return staging_->memory_version(uid, 1, unit).has_value();
  }

  uint64_t warm_pool_ = 0;
  ::ckptd::testing::HeldMemory memory_;
  MemoryDisk disk_{{.seed = 1}};
  std::unique_ptr<Executor> executor_ = make_inline_executor();
  std::unique_ptr<Staging> staging_;
};

TEST_F(KeptMemoryTest, SlabsKeepTheirStateOverRestart) {
  SmallTrainer trainer = open();
  hold(trainer, kFirst, 7, kStep5);
  make_durable(trainer, kFirst + 1, 9, kStep6);
  const std::vector<std::byte> bytes(trainer.slab(kFirst).begin(),
                                     trainer.slab(kFirst).begin() + 5'000);
  const auto taken = restart();
  EXPECT_EQ(taken.arenas, 1u);
  EXPECT_EQ(taken.slabs, 2u);
  EXPECT_EQ(taken.bytes, 5'070u + 5'000u);
  EXPECT_EQ(taken.refused, 0u);
  EXPECT_EQ(count(SlabState::kHeld), 1u);
  EXPECT_EQ(count(SlabState::kDurable), 1u);
  EXPECT_TRUE(held(kAlice, 7) && held(kAlice, 8));
  EXPECT_FALSE(held(kBob, 7)) << "it is another user's";
  const auto lease = staging_->find_cached(kAlice, kStep5, 7, 0, 5'000);
  ASSERT_TRUE(lease);
  EXPECT_TRUE(std::equal(lease->bytes.begin(), lease->bytes.end(), bytes.begin(), bytes.end()));
  EXPECT_TRUE(staging_->find_cached(kAlice, kStep6, 9, 100, 10));
  EXPECT_FALSE(staging_->find_cached(kBob, kStep6, 9, 100, 10));
}

TEST_F(KeptMemoryTest, SurvivesManyRestarts) {
  SmallTrainer trainer = open();
  hold(trainer, kFirst, 7, kStep5);
  hold(trainer, kFirst + 1, 9, kStep6);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(restart().slabs, 2u);
    EXPECT_EQ(count(SlabState::kHeld), 2u);
  }
}

TEST_F(KeptMemoryTest, UncommittedAndSupersededSlabsAreReleased) {
  SmallTrainer trainer = open();
  StagedSlab sealed = seal(trainer, kFirst, {{3, 100}}, 3);
  EXPECT_EQ(count(SlabState::kSealed), 1u);
  sealed = StagedSlab();
  hold(trainer, kFirst + 1, 7, kStep5);
  staging_->supersede(kStep6, {7, 8});
  EXPECT_EQ(restart().slabs, 0u);
  EXPECT_EQ(staging_->stats().arenas, 0u) << "nothing is left in it";
  EXPECT_THAT(memory_.held, IsEmpty());
}

TEST_F(KeptMemoryTest, ReleasedArenaIsForgotten) {
  SmallTrainer trainer = open();
  EXPECT_THAT(memory_.held, SizeIs(2));
  staging_->session_ended(trainer.arena);
  EXPECT_THAT(memory_.held, IsEmpty());
}

TEST_F(KeptMemoryTest, DeletedCommitsAreReleased) {
  SmallTrainer trainer = open();
  hold(trainer, kFirst, 7, kStep5);
  hold(trainer, kFirst + 1, 9, kStep6);
  const auto taken = restart(64 * kSlab, {kStep5});
  EXPECT_EQ(taken.slabs, 1u);
  EXPECT_EQ(taken.refused, 0u);
  EXPECT_FALSE(held(kAlice, 7));
  EXPECT_TRUE(held(kAlice, 9));
  EXPECT_EQ(restart().slabs, 1u) << "and do not come back";
}

TEST_F(KeptMemoryTest, TrainerReconnectsToItsArena) {
  SmallTrainer trainer = open();
  const UniqueFd fd(::fcntl(trainer.fd, F_DUPFD_CLOEXEC, 0));
  hold(trainer, kFirst, 7, kStep5);
  restart();
  const auto again = [&](uid_t uid, uint64_t slab_bytes) {
    return staging_->adopt(uid, UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)), 8 * kSlab,
                           slab_bytes);
  };
  const auto bobs = again(kBob, kSlab);
  ASSERT_FALSE(bobs.ok());
  EXPECT_EQ(bobs.error().code, ErrorCode::kPermissionDenied);
  EXPECT_FALSE(again(kAlice, 2 * kSlab).ok());
  const auto adopted = again(kAlice, kSlab);
  ASSERT_TRUE(adopted.ok()) << adopted.error().message;
  EXPECT_EQ(adopted->arena, trainer.arena);
  EXPECT_EQ(staging_->stats().arenas, 1u) << "the same one";
  run_all(disk_, *executor_);
  EXPECT_TRUE(held(kAlice, 7));
  EXPECT_FALSE(staging_->claim_leased(trainer.arena, kFirst).ok()) << "it is held";
  EXPECT_TRUE(staging_->claim_leased(trainer.arena, kFirst + 1).ok());
  staging_->free_unclaimed(trainer.arena);
  EXPECT_THAT(staging_->lease(trainer.arena, 10), ElementsAre(4, 5, 6, 7, kFirst));
  EXPECT_FALSE(held(kAlice, 7)) << "it gave way";
  EXPECT_EQ(restart().slabs, 0u);
}

TEST_F(KeptMemoryTest, NewArenasEvictKeptArenasOnDemand) {
  SmallTrainer trainer = open(kAlice, 8);
  hold(trainer, kFirst, 7, kStep5);
  restart(16 * kSlab);
  SmallTrainer second = open(kBob, 8);
  EXPECT_GT(second.arena, trainer.arena);
  EXPECT_TRUE(held(kAlice, 7));
  SmallTrainer third = open(kBob, 8);
  EXPECT_FALSE(held(kAlice, 7)) << "nobody had come back to it";
  EXPECT_THAT(memory_.held, SizeIs(4));
}

TEST_F(KeptMemoryTest, SmallerLimitTakesBackFewerArenas) {
  SmallTrainer first = open();
  hold(first, kFirst, 7, kStep5);
  SmallTrainer second = open();
  hold(second, kFirst, 9, kStep6);
  const auto taken = restart(8 * kSlab);
  EXPECT_EQ(taken.arenas, 1u);
  EXPECT_EQ(taken.refused, 1u);
  EXPECT_THAT(memory_.held, SizeIs(2));
}

TEST_F(KeptMemoryTest, RefusesSlabsWithChecksumMismatch) {
  SmallTrainer trainer = open();
  hold(trainer, kFirst, 7, kStep5);
  make_durable(trainer, kFirst + 1, 9, kStep5);
  hold(trainer, kFirst + 2, 11, kStep6);
  trainer.slab(kFirst)[4'999] ^= std::byte{1};
  trainer.slab(kFirst + 1)[0] ^= std::byte{128};
  const auto taken = restart();
  EXPECT_EQ(taken.slabs, 1u);
  EXPECT_EQ(taken.refused, 2u);
  EXPECT_FALSE(held(kAlice, 7));
  EXPECT_FALSE(staging_->find_cached(kAlice, kStep5, 9, 0, 1));
  EXPECT_TRUE(held(kAlice, 11));
  EXPECT_EQ(restart().refused, 0u) << "they are out of the ledger";
}

// Any damage of a ledger: the entries taken back are real ones, maybe fewer.
TEST_F(KeptMemoryTest, DamagedLedgerLosesOnlyEntries) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    memory_.held.clear();
    restart();
    SmallTrainer trainer = open();
    hold(trainer, kFirst, 7, kStep5);
    make_durable(trainer, kFirst + 1, 9, kStep6);
    const int ledger = memory_.held.at("ledger-" + std::to_string(trainer.arena)).get();
    const ckpt::ArenaLayout layout = trainer.layout;
    const std::array<uint64_t, 4> places = {
        0, ckpt::ledger_slot_offset(layout, LedgerTable::kHeld, kFirst),
        ckpt::ledger_slot_offset(layout, LedgerTable::kDurable, kFirst + 1),
        ckpt::ledger_slot_offset(layout, LedgerTable::kHeld, kFirst + 3)};
    const uint64_t at = places[random() % 4] + random() % (seed % 2 == 0 ? 200 : 4'096);
    std::vector<uint8_t> garbage(1 + random() % (seed % 3 == 0 ? 300 : 2));
    for (uint8_t& byte : garbage) byte = static_cast<uint8_t>(random());
    if (seed % 5 == 0) {
      EXPECT_EQ(::ftruncate(ledger, static_cast<off_t>(at)), 0);
    } else {
      EXPECT_EQ(::pwrite(ledger, garbage.data(), garbage.size(), static_cast<off_t>(at)),
                static_cast<ssize_t>(garbage.size()));
    }
    const auto taken = restart();
    EXPECT_LE(taken.slabs, 2u);
    EXPECT_EQ(count(SlabState::kHeld) + count(SlabState::kDurable), taken.slabs);
    SmallTrainer next = open(kBob);
    EXPECT_GT(next.arena, trainer.arena) << "the daemon goes on";
  }
}

TEST_F(KeptMemoryTest, RefusesMisplacedLedgerAndEntry) {
  SmallTrainer first = open();
  hold(first, kFirst, 7, kStep5);
  SmallTrainer second = open();
  hold(second, kFirst, 9, kStep6);
  // Two ledgers are swapped.
  std::swap(memory_.held.at("ledger-1"), memory_.held.at("ledger-2"));
  EXPECT_EQ(restart().refused, 2u);
  EXPECT_THAT(memory_.held, IsEmpty());

  SmallTrainer third = open();
  hold(third, kFirst, 7, kStep5);
  auto& ledger = memory_.held.at("ledger-" + std::to_string(third.arena));
  std::vector<std::byte> entry(4'096);
  const auto from = ckpt::ledger_slot_offset(third.layout, LedgerTable::kHeld, kFirst);
  const auto to = ckpt::ledger_slot_offset(third.layout, LedgerTable::kDurable, kFirst);
  ASSERT_EQ(::pread(ledger.get(), entry.data(), entry.size(), static_cast<off_t>(from)), 4'096);
  ASSERT_EQ(::pwrite(ledger.get(), entry.data(), entry.size(), static_cast<off_t>(to)), 4'096);
  const auto taken = restart();
  EXPECT_EQ(taken.slabs, 1u);
  EXPECT_EQ(taken.refused, 1u);
  EXPECT_EQ(count(SlabState::kDurable), 0u) << "what no disk has must not count as durable";
}

// Other descriptors that a service manager may hand over.
TEST_F(KeptMemoryTest, ForeignDescriptorsAreReleased) {
  const auto any_kind = [](int kind) {
    int ends[2] = {-1, -1};
    if (kind == 0) return UniqueFd(::memfd_create("test", MFD_CLOEXEC));
    if (kind == 1) return UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC));
    if (kind == 2) return UniqueFd(::open("/", O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    ::close(ends[1]);
    return UniqueFd(ends[0]);
  };
  for (int kind = 0; kind < 4; ++kind) {
    SCOPED_TRACE(kind);
    memory_.held.clear();
    for (const char* name :
         {"arena-1", "ledger-1", "arena-2", "ledger-3", "arena-", "arena-0", "arena--1", "arena-01",
          "ledger-18446744073709551615", "", "x", "arena-18446744073709551616"}) {
      memory_.held[name] = any_kind(kind);
    }
    EXPECT_EQ(restart().slabs, 0u);
    EXPECT_THAT(memory_.held, IsEmpty());
    EXPECT_GT(open().arena, 0u);
  }
}

TEST_F(KeptMemoryTest, MemoryOfAnotherStoreIsReleased) {
  SmallTrainer trainer = open();
  hold(trainer, kFirst, 7, kStep5);
  staging_->close();
  Staging::Options options{.arena_bytes_total = 64 * kSlab};
  options.keeper = &memory_;
  options.store = {.low = 9, .high = 9};
  staging_ = std::make_unique<Staging>(disk_, *executor_, options);
  EXPECT_EQ(staging_->restore_kept([](const auto&) { return true; }).slabs, 0u);
  EXPECT_THAT(memory_.held, IsEmpty());
}

// Memory that a trainer may reconnect to has priority over the warm pool.
TEST_F(KeptMemoryTest, KeptArenasPrecedeTheWarmPool) {
  SmallTrainer trainer = open(kAlice, 12);
  hold(trainer, 3, 1, kStep5);
  warm_pool_ = 16 * kSlab;
  EXPECT_EQ(restart(20 * kSlab).arenas, 1u);
  while (staging_->warm()) run_all(disk_, *executor_);
  EXPECT_EQ(staging_->stats().warm_pool_bytes, 8 * kSlab) << "16 would be kept for nobody";
}

}  // namespace
}  // namespace ckptd
