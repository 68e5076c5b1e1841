// Blobs through the daemon: saved, listed, restored, verified, removed, recovered and refused.
#include "ckptd/history/recovered_store.h"
#include "formats/base/crc32c.h"
#include "tests/ckptd/daemon/fragment_place.h"
#include "tests/ckptd/daemon/prune_fixture.h"
#include "tests/ckptd/daemon/store_files.h"

namespace ckptd::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kRngBytes = 5'000;
constexpr uint64_t kLargeBytes = 150'000;  // more than two slabs

class BlobsTest : public PruneTest {
 protected:
  explicit BlobsTest(const World::Options& options = {}) : PruneTest(options), job(world, 2) {
    job.start();
    declare();
  }
  // Each rank has a blob `rng`; rank 0 also a global one, rank 1 an empty one.
  void declare() {
    job.ranks[0]->blobs = {{"rng", kRngBytes}, {"loader", kLargeBytes, true}};
    job.ranks[1]->blobs = {{"rng", kRngBytes + 1}, {"empty", 0}};
  }
  static fb::ListBlobsT at(ckpt::Step step) {
    fb::ListBlobsT request;
    request.run = "tiny";
    request.step = step;
    return request;
  }
  std::vector<std::string> labels(FakeTrainer& trainer, ckpt::Step step) {
    std::vector<std::string> labels;
    const auto listed = trainer.list_blobs(at(step));
    if (!listed) return {trainer.error()};
    for (const auto& blob : listed->blobs) {
      labels.push_back(ckpt::blob_label(blob->name, blob->rank, blob->global));
    }
    return labels;
  }
  // All blobs of the step restore, bit for bit.
  void expect_blobs(FakeTrainer& trainer, ckpt::Step step, size_t count = 4) {
    const auto listed = trainer.list_blobs(at(step));
    ASSERT_TRUE(listed.has_value()) << trainer.error();
    ASSERT_EQ(listed->blobs.size(), count);
    const auto restored = trainer.restore(trainer.whole_blobs(*listed));
    ASSERT_EQ(restored.error, "");
    for (size_t i = 0; i < listed->blobs.size(); ++i) {
      const fb::BlobListedT& blob = *listed->blobs[i];
      EXPECT_EQ(restored.steps[i], step);
      EXPECT_EQ(ckpt::base::crc32c(restored.bytes[i]), blob.crc32c);
      for (uint64_t at = 0; at < blob.bytes; ++at) {
        ASSERT_EQ(restored.bytes[i][at], state_byte(blob.id, step, 0, at)) << blob.name;
      }
    }
  }
  std::string refused(const std::vector<ckpt::BlobSpec>& zero,
                      const std::vector<ckpt::BlobSpec>& one) {
    job.ranks[0]->blobs = zero;
    job.ranks[1]->blobs = one;
    job.begin(++refused_step_);
    job.listen();
    const std::string first = job.ranks[0]->error();
    return first + job.ranks[1]->error() + job.ranks[0]->snapshot(refused_step_).reason;
  }

  Job job;
  ckpt::Step refused_step_ = 100;
};

TEST_F(BlobsTest, AreRestoredByNameAndRank) {
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  EXPECT_THAT(labels(*job.ranks[1], 5),
              ElementsAre("rng (blob of rank 0)", "loader (global blob)", "rng (blob of rank 1)",
                          "empty (blob of rank 1)"));
  for (const ckpt::Step step : {5, 10}) expect_blobs(*job.ranks[1], step);
  restart();
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  for (const ckpt::Step step : {5, 10}) expect_blobs(reader, step);
  fb::ListBlobsT latest = at(0);
  latest.latest = true;
  EXPECT_EQ(reader.list_blobs(latest)->step, 10u);
  job.expect_restores(reader, 10);
  expect_verified();
}

TEST_F(BlobsTest, CommitWithoutBlobsListsNone) {
  job.commit(5);
  for (auto& rank : job.ranks) rank->blobs.clear();
  job.commit(10);
  EXPECT_THAT(labels(*job.ranks[0], 10), IsEmpty());
  const auto listed = job.ranks[0]->list_blobs(at(5));
  ASSERT_TRUE(listed.has_value());
  fb::OpenRestoreT request = job.ranks[0]->whole_blobs(*listed);
  request.step = 10;
  EXPECT_THAT(job.ranks[0]->restore(request).error, HasSubstr("no version in this view"));
}

TEST_F(BlobsTest, DamageFailsRestoreWithoutFallback) {
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  const ckpt::UnitId rng = ckpt::blob_id(1, 0);
  const auto [path, offset] = fragment_place(world, 10, rng);
  restart();
  world.disk().flip(path, offset + 3);
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  const auto listed = reader.list_blobs(at(10));
  ASSERT_TRUE(listed.has_value());
  EXPECT_THAT(reader.restore(reader.whole_blobs(*listed)).error,
              AllOf(HasSubstr("step 10 unit rng (blob of rank 1)"), HasSubstr("CRC32C mismatch")));
  FakeTrainer another(world, {});
  ASSERT_TRUE(another.connect());
  job.expect_restores(another, 10);
  expect_blobs(another, 5);
  FakeTrainer root(world, {.uid = 0, .arena_bytes = 0, .kind = fb::SessionKind::Control});
  ASSERT_TRUE(root.connect());
  const Json report = Json::parse(root.query("verify", "{}").json);
  ASSERT_EQ(report.at("errors").size(), 1u) << report;
  EXPECT_EQ(report.at("errors")[0].at("unit"), "rng (blob of rank 1)");
  EXPECT_EQ(report.at("errors")[0].at("step"), 10);
  const Json shown = Json::parse(root.query("show", R"({"target": "tiny@10"})").json);
  ASSERT_EQ(shown.at("blobs").size(), 4u);
  EXPECT_TRUE(shown.at("blobs")[2].contains("damage")) << shown;
  EXPECT_FALSE(shown.at("blobs")[0].contains("damage")) << shown;
}

TEST_F(BlobsTest, AreRemovedWithTheirCommit) {
  job.commit(5);
  commit_units(job, 10, {0, 1});
  const auto [path, offset] = fragment_place(world, 5, ckpt::blob_id(0, 1));
  const uint64_t before = used();
  ask_root("rm", R"({"target": "tiny@5"})");
  world.run();
  EXPECT_THAT(labels(*job.ranks[0], 5), ElementsAre(HasSubstr("tiny~1@5: deleted")));
  EXPECT_LT(used(), before - kLargeBytes / 2) << "units 2 and 3 stay, the blob's blocks do not";
  expect_view(job, 10, {10, 10, 5, 5});
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  expect_blobs(reader, 10);
  expect_verified();
}

TEST_F(BlobsTest, RemovalCountsBlobBytes) {
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  const Json bytes = ask_root("log", R"({"target": "tiny@5"})").at(0).at("bytes");
  EXPECT_GT(bytes, kLargeBytes);
  const Json removal = ask_root("rm", R"({"target": "tiny@5"})");
  ASSERT_EQ(removal.at("removed").size(), 1u) << removal;
  EXPECT_EQ(removal.at("removed")[0].at("bytes"), bytes);
}

TEST_F(BlobsTest, SurviveARebuildOfTheCatalog) {
  job.commit(5);
  const Json before = ask_root("show", R"({"target": "tiny@5"})");
  world.kill_daemon();
  world.lose_catalog();
  ASSERT_TRUE(world.start().ok());
  EXPECT_EQ(ask_root("show", R"({"target": "tiny@5"})"), before);
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  expect_blobs(reader, 5);
}

TEST_F(BlobsTest, SurviveASalvageOfTheJournal) {
  job.commit(5);
  const FileId journal = world.disk().open(kJournalPath, {}).value();
  const uint64_t end = world.disk().size(journal).value();
  world.disk().close(journal);
  job.commit(10);
  world.kill_daemon();
  world.disk().flip(kJournalPath, end + 200);
  ASSERT_TRUE(world.start().ok());
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  for (const ckpt::Step step : {5, 10}) expect_blobs(reader, step);
  expect_verified();
}

TEST_F(BlobsTest, SurviveARestartBeforeTheCommit) {
  job.begin(5);
  ASSERT_TRUE(job.ranks[0]->fill(5)) << job.ranks[0]->error();
  world.run();
  job.listen();  // rank 1 knows its slabs
  world.kill_daemon();
  ASSERT_TRUE(world.start().ok());
  for (auto& rank : job.ranks) ASSERT_TRUE(rank->reconnect()) << rank->error();
  world.run();
  ASSERT_TRUE(job.ranks[1]->fill(5)) << job.ranks[1]->error();
  world.run();
  job.listen();
  ASSERT_EQ(job.ranks[0]->snapshot(5).level, fb::SnapshotLevel::Durable)
      << job.ranks[0]->snapshot(5).reason << job.ranks[0]->error();
  expect_blobs(*job.ranks[0], 5);
}

TEST_F(BlobsTest, FirstBlobRaisesStoreVersion) {
  const auto version = [this] {
    uint32_t read = 0;
    for (const auto& record : journal_records(world.disk())) {
      if (const auto* opened = record.body.AsStoreOpened()) read = opened->format_version;
    }
    return read;
  };
  for (auto& rank : job.ranks) rank->blobs.clear();
  job.commit(5);
  EXPECT_LT(version(), 10u);
  declare();
  job.commit(10);
  EXPECT_EQ(version(), 10u);
}

TEST_F(BlobsTest, DiffNamesChangedBlobs) {
  job.commit(5);
  job.ranks[1]->blobs = {{"rng", kRngBytes + 1}, {"more", 10}};
  job.commit(10);
  const Json diff = ask_root("diff", R"({"from": "tiny@5", "to": "tiny@10"})");
  std::vector<std::string> changes;
  for (const Json& change : diff.at("blobs")) {
    changes.push_back(change.at("blob").get<std::string>() + " " +
                      change.at("change").get<std::string>());
  }
  EXPECT_THAT(changes, ElementsAre("loader changed", "more added", "rng changed", "rng changed",
                                   "empty removed"));
}

TEST_F(BlobsTest, BadDeclarationsAreRefused) {
  EXPECT_THAT(refused({{"a", 1, true}}, {{"a", 1, true}}),
              HasSubstr("ranks 0 and 1 both declare the global blob a"));
  EXPECT_THAT(refused({{"a", 1}, {"a", 2}}, {}), HasSubstr("blob a: declared twice"));
  EXPECT_THAT(refused({{"a/b", 1}}, {}), HasSubstr("a blob name is 1 to 255 characters"));
  declare();
  job.commit(200);
  expect_blobs(*job.ranks[0], 200);
}

// Seals of blobs that were not declared so, by a client that checks nothing.
TEST_F(BlobsTest, HostileSealsFailTheSnapshotAlone) {
  job.ranks[1]->blobs.clear();
  const auto seal = [&](ckpt::Step step, ckpt::UnitId unit, uint64_t length) {
    job.begin(step);
    job.listen();
    fb::SealSlabT body;
    body.epoch = job.ranks[0]->epoch().epoch;
    body.step = step;
    body.slab = job.ranks[0]->snapshot(step).slabs.front();
    body.payload_bytes = length;
    body.fragments.emplace_back(unit, 0, 0, length, 0);
    job.ranks[0]->send(body);
    world.run();
    job.listen();
    EXPECT_EQ(job.ranks[0]->snapshot(step).level, fb::SnapshotLevel::Failed);
    return job.ranks[0]->error();
  };
  EXPECT_THAT(seal(101, ckpt::blob_id(1, 0), 10), HasSubstr("sealed but not declared"));
  EXPECT_THAT(seal(102, ckpt::blob_id(0, 2), 10), HasSubstr("sealed but not declared"));
  EXPECT_THAT(seal(103, ckpt::blob_id(0, 0), kRngBytes + 1), HasSubstr("but not declared"));
  EXPECT_THAT(seal(104, ~ckpt::UnitId{0}, 10), HasSubstr("sealed but not declared"));
  job.commit(105);
  expect_blobs(*job.ranks[0], 105, 2);
}

class EncodedBlobsTest : public BlobsTest {
 protected:
  EncodedBlobsTest() : BlobsTest({.alarms = fb::AlarmPolicy::Warn, .codec = CodecChoice::kDelta}) {
    for (auto& rank : job.ranks) {
      rank->byte_at = [](ckpt::UnitId unit, ckpt::Step step, uint64_t salt, uint64_t offset) {
        if (ckpt::is_blob(unit)) return state_byte(unit, step, salt, offset);
        return std::byte{0};  // compresses well
      };
    }
  }
};

TEST_F(EncodedBlobsTest, StayRawBesideEncodedUnits) {
  for (const ckpt::Step step : {5, 10}) job.commit(step);
  bool encoded = false;
  for (const auto& record : journal_records(world.disk())) {
    const auto* commit = record.body.AsCommitted();
    if (commit == nullptr) continue;
    encoded = encoded || !commit->encoded.empty();
    EXPECT_EQ(commit->blobs.size(), 4u);
    for (const fb::Fragment& fragment : commit->blob_fragments) EXPECT_EQ(fragment.codec(), 0u);
  }
  EXPECT_TRUE(encoded);
  restart();
  FakeTrainer reader(world, {});
  ASSERT_TRUE(reader.connect());
  for (const ckpt::Step step : {5, 10}) expect_blobs(reader, step);
  expect_verified();
}

}  // namespace
}  // namespace ckptd::testing
