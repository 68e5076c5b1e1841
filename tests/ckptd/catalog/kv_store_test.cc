#include "ckptd/catalog/kv_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "tests/ckptd/catalog/kv_fixture.h"

namespace ckptd {
namespace {

using Entries = std::vector<KvEntry>;

Entries entries(const KvStore& store, Family family, std::string_view prefix,
                KvStore::Order order = KvStore::Order::kAscending) {
  Entries found;
  EXPECT_TRUE(store
                  .scan(family, prefix, order,
                        [&](std::string_view key, std::string_view value) {
                          found.push_back({std::string(key), std::string(value)});
                          return true;
                        })
                  .ok());
  return found;
}

template <typename Room>
class KvStoreTest : public testing::Test {
 protected:
  Room room_;
};
using Rooms = testing::Types<MemoryRoom, RocksDbRoom>;
TYPED_TEST_SUITE(KvStoreTest, Rooms);

TYPED_TEST(KvStoreTest, ReadsBackWritesAfterReopen) {
  auto store = this->room_.open();
  const std::string binary("\0\xff\x80 key", 7);
  ASSERT_TRUE(store->write({{Family::kRuns, binary, "value"}, {Family::kTags, binary, ""}}).ok());
  ASSERT_TRUE(store->write({{Family::kRuns, "gone", "x"}, {Family::kRuns, "gone", {}}}).ok());
  store.reset();
  store = this->room_.open();
  EXPECT_EQ(store->get(Family::kRuns, binary).value(), "value");
  EXPECT_EQ(store->get(Family::kTags, binary).value(), "");
  EXPECT_EQ(store->get(Family::kMeta, binary).value(), std::nullopt);
  EXPECT_EQ(store->get(Family::kRuns, "gone").value(), std::nullopt);
}

TYPED_TEST(KvStoreTest, ScansPrefixInBothOrdersUntilStopped) {
  auto store = this->room_.open();
  const std::string last("\xff\xff", 2);
  ASSERT_TRUE(store
                  ->write({{Family::kUnits, "a", "1"},
                           {Family::kUnits, "ab", "2"},
                           {Family::kUnits, "abc", "3"},
                           {Family::kUnits, "b", "4"},
                           {Family::kUnits, last, "5"},
                           {Family::kUnits, last + "x", "6"},
                           {Family::kTags, "ab", "other family"}})
                  .ok());
  EXPECT_EQ(entries(*store, Family::kUnits, "ab"), (Entries{{"ab", "2"}, {"abc", "3"}}));
  EXPECT_EQ(entries(*store, Family::kUnits, "ab", KvStore::Order::kDescending),
            (Entries{{"abc", "3"}, {"ab", "2"}}));
  EXPECT_EQ(entries(*store, Family::kUnits, last, KvStore::Order::kDescending),
            (Entries{{last + "x", "6"}, {last, "5"}}));
  EXPECT_EQ(entries(*store, Family::kUnits, "").size(), 6u);
  EXPECT_EQ(entries(*store, Family::kUnits, "", KvStore::Order::kDescending).size(), 6u);
  EXPECT_TRUE(entries(*store, Family::kUnits, "zz").empty());
  EXPECT_TRUE(entries(*store, Family::kUnits, "zz", KvStore::Order::kDescending).empty());
  int seen = 0;
  ASSERT_TRUE(store
                  ->scan(Family::kUnits, "", KvStore::Order::kAscending,
                         [&](std::string_view, std::string_view) { return ++seen < 2; })
                  .ok());
  EXPECT_EQ(seen, 2);
}

TYPED_TEST(KvStoreTest, SeeksBackwardsWithinThePrefix) {
  auto store = this->room_.open();
  ASSERT_TRUE(store->write({{Family::kVersions, "a1", "x"}, {Family::kVersions, "b5", "y"}}).ok());
  const auto seek = [&](std::string_view key, std::string_view prefix) {
    return store->seek_for_prev(Family::kVersions, key, prefix).value();
  };
  EXPECT_EQ(seek("b5", "b"), (KvEntry{"b5", "y"}));
  EXPECT_EQ(seek("b9", "b"), (KvEntry{"b5", "y"}));
  EXPECT_EQ(seek("b4", "b"), std::nullopt);  // the entry before b4 has another prefix
  EXPECT_EQ(seek("b4", ""), (KvEntry{"a1", "x"}));
  EXPECT_EQ(seek("a0", ""), std::nullopt);
}

TYPED_TEST(KvStoreTest, ScansBackFromMissingKey) {
  auto store = this->room_.open();
  ASSERT_TRUE(store
                  ->write({{Family::kVersions, "a1", "w"},
                           {Family::kVersions, "b1", "x"},
                           {Family::kVersions, "b5", "y"},
                           {Family::kVersions, "c1", "z"}})
                  .ok());
  const auto back = [&](std::string_view from, std::string_view prefix, size_t most = 9) {
    std::string keys;
    const auto visit = [&](std::string_view key, std::string_view) {
      keys += key;
      return keys.size() < 2 * most;
    };
    EXPECT_TRUE(store->scan_back(Family::kVersions, from, prefix, visit).ok());
    return keys;
  };
  EXPECT_EQ(back("b7", "b"), "b5b1");
  EXPECT_EQ(back("b5", "b"), "b5b1");
  EXPECT_EQ(back("b7", "b", 1), "b5");
  EXPECT_EQ(back("b4", "b"), "b1");
  EXPECT_EQ(back("b0", "b"), "");
  EXPECT_EQ(back("z", ""), "c1b5b1a1");
  EXPECT_EQ(back("a0", ""), "");
}

TYPED_TEST(KvStoreTest, ScansForwardFromMissingKey) {
  auto store = this->room_.open();
  ASSERT_TRUE(store
                  ->write({{Family::kVersions, "a1", "w"},
                           {Family::kVersions, "b1", "x"},
                           {Family::kVersions, "b5", "y"},
                           {Family::kVersions, "c1", "z"}})
                  .ok());
  const auto on = [&](std::string_view from, std::string_view prefix, size_t most = 9) {
    std::string keys;
    const auto visit = [&](std::string_view key, std::string_view) {
      keys += key;
      return keys.size() < 2 * most;
    };
    EXPECT_TRUE(store->scan_on(Family::kVersions, from, prefix, visit).ok());
    return keys;
  };
  EXPECT_EQ(on("b0", "b"), "b1b5");
  EXPECT_EQ(on("b1", "b"), "b1b5");
  EXPECT_EQ(on("b1", "b", 1), "b1");
  EXPECT_EQ(on("b2", "b"), "b5");
  EXPECT_EQ(on("b6", "b"), "");
  EXPECT_EQ(on("a2", ""), "b1b5c1");
  EXPECT_EQ(on("d", ""), "");
}

TYPED_TEST(KvStoreTest, SeeksManyAtOnce) {
  auto store = this->room_.open();
  ASSERT_TRUE(store->write({{Family::kVersions, "b1", "x"}, {Family::kVersions, "b5", "y"}}).ok());
  std::string found;
  ASSERT_TRUE(store
                  ->seek_each(Family::kVersions, {"a", "b1", "b2", "b5", "c"},
                              [&](size_t i, std::string_view key, std::string_view value) {
                                found += fmt::format("{}:{}={} ", i, key, value);
                              })
                  .ok());
  EXPECT_EQ(found, "1:b1=x 2:b1=x 3:b5=y 4:b5=y ");
}

TYPED_TEST(KvStoreTest, ClearedStoreIsEmptyAndUsable) {
  auto store = this->room_.open();
  ASSERT_TRUE(store->write({{Family::kMeta, "a", "1"}}).ok());
  ASSERT_TRUE(store->clear().ok());
  EXPECT_TRUE(entries(*store, Family::kMeta, "").empty());
  ASSERT_TRUE(store->write({{Family::kMeta, "b", "2"}}).ok());
  store.reset();
  EXPECT_EQ(entries(*this->room_.open(), Family::kMeta, ""), (Entries{{"b", "2"}}));
}

TYPED_TEST(KvStoreTest, AgreesWithAMapOnRandomBatches) {
  const uint64_t seed = testing::UnitTest::GetInstance()->random_seed() + 1;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::map<std::string, std::string> model;
  auto store = this->room_.open();
  for (int round = 0; round < 50; ++round) {
    std::vector<KvWrite> batch;
    for (uint64_t i = random() % 20; i > 0; --i) {
      std::string key;
      for (uint64_t length = 1 + random() % 3; length > 0; --length) {
        key.push_back("\x00\x01\x7f\x80\xff"[random() % 5]);
      }
      const uint64_t operation = random() % 12;
      if (operation == 0) {
        batch.push_back({Family::kCommits, key, std::nullopt, /*prefix=*/true});
        std::erase_if(model, [&key](const auto& entry) { return entry.first.starts_with(key); });
      } else if (operation < 4) {
        batch.push_back({Family::kCommits, key, std::nullopt});
        model.erase(key);
      } else {
        batch.push_back({Family::kCommits, key, std::to_string(random())});
        model[key] = *batch.back().value;
      }
    }
    ASSERT_TRUE(store->write(batch).ok());
    const std::string probe(1 + random() % 3, "\x00\x01\x7f\x80\xff"[random() % 5]);
    auto after = model.upper_bound(probe);
    const auto found = store->seek_for_prev(Family::kCommits, probe, "").value();
    ASSERT_EQ(found.has_value(), after != model.begin());
    EXPECT_TRUE(!found || found->key == std::prev(after)->first);
  }
  Entries expected;
  for (const auto& [key, value] : model) expected.push_back({key, value});
  EXPECT_EQ(entries(*store, Family::kCommits, ""), expected);
}

TEST(MemoryKvImageTest, KeepsAnyPrefixOfBatches) {
  MemoryRoom room;
  auto store = room.open();
  ASSERT_TRUE(store->write({{Family::kMeta, "a", "1"}}).ok());
  ASSERT_TRUE(store->write({{Family::kMeta, "a", "2"}, {Family::kTags, "t", "x"}}).ok());
  ASSERT_TRUE(store->clear().ok());
  ASSERT_EQ(room.image().batches(), 3u);
  room.image().keep_prefix(2);
  EXPECT_EQ(store->get(Family::kMeta, "a").value(), "2");
  EXPECT_EQ(store->get(Family::kTags, "t").value(), "x");
  room.image().keep_prefix(1);
  EXPECT_EQ(store->get(Family::kMeta, "a").value(), "1");
  EXPECT_EQ(store->get(Family::kTags, "t").value(), std::nullopt);
}

// Damages every file whose name begins with the prefix.
void spoil(const std::string& directory, const std::string& prefix) {
  int spoilt = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    std::ofstream(entry.path(), std::ios::trunc) << "not what was here";
    ++spoilt;
  }
  EXPECT_GT(spoilt, 0) << prefix;
}

TEST(RocksDbStoreTest, OnlyClearMovesADamagedCatalogAside) {
  for (const std::string prefix : {"MANIFEST", "CURRENT"}) {
    const RocksDbRoom room;
    {
      auto opened = open_rocksdb_store(room.directory());
      ASSERT_TRUE(opened->store->write({{Family::kMeta, "a", "1"}}).ok());
    }
    spoil(room.directory(), prefix);
    auto opened = open_rocksdb_store(room.directory());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_NE(opened->broken, "") << prefix;
    EXPECT_FALSE(std::filesystem::exists(room.directory() + ".broken"));
    const auto damaged = opened->store->get(Family::kMeta, "a");
    ASSERT_FALSE(damaged.ok());
    EXPECT_TRUE(is_catalog_damage(damaged.error().code)) << damaged.error().message;
    ASSERT_TRUE(opened->store->clear().ok());
    EXPECT_TRUE(std::filesystem::exists(room.directory() + ".broken"));
    EXPECT_EQ(opened->store->get(Family::kMeta, "a").value(), std::nullopt);
    ASSERT_TRUE(opened->store->write({{Family::kMeta, "b", "2"}}).ok());
    opened->store.reset();
    opened = open_rocksdb_store(room.directory());
    EXPECT_EQ(opened->broken, "");
    EXPECT_EQ(opened->store->get(Family::kMeta, "b").value(), "2");
  }
}

TEST(RocksDbStoreTest, ClearMovesNoReopenedCatalogAside) {
  RocksDbRoom room;
  ASSERT_TRUE(room.open()->write({{Family::kMeta, "a", "1"}}).ok());
  const std::string current = room.directory() + "/CURRENT";
  std::filesystem::copy_file(current, room.directory() + ".current");
  spoil(room.directory(), "CURRENT");
  const auto opened = open_rocksdb_store(room.directory());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  ASSERT_NE(opened->broken, "");
  std::filesystem::copy_file(room.directory() + ".current", current,
                             std::filesystem::copy_options::overwrite_existing);
  ASSERT_TRUE(opened->store->reopen().ok());
  EXPECT_EQ(opened->store->get(Family::kMeta, "a").value(), "1");
  ASSERT_TRUE(opened->store->clear().ok());
  EXPECT_FALSE(std::filesystem::exists(room.directory() + ".broken"));
}

// Simulates a full disk: no file of this process may grow beyond `bytes`.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    (void)std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(RocksDbStoreTest, FailedWriteClosesStoreUntilReopened) {
  RocksDbRoom room;
  auto store = room.open();
  ASSERT_TRUE(store->write({{Family::kMeta, "a", "1"}}).ok());
  const std::vector<KvWrite> large = {{Family::kMeta, "b", std::string(256 << 10, 'x')}};
  {
    const FileSizeLimit limit(64 << 10);
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(store->write(large).ok());
    EXPECT_FALSE(store->get(Family::kMeta, "a").ok()) << "it must not look empty";
    EXPECT_FALSE(store->scan(Family::kMeta, "", KvStore::Order::kAscending, {}).ok());
  }
  EXPECT_FALSE(store->write(large).ok()) << "not behind what the failed write left";
  ASSERT_TRUE(store->reopen().ok());
  EXPECT_EQ(store->get(Family::kMeta, "a").value(), "1");
  EXPECT_TRUE(store->write(large).ok());
  ASSERT_TRUE(store->clear().ok());
  EXPECT_EQ(store->get(Family::kMeta, "a").value(), std::nullopt);
}

TEST(RocksDbStoreTest, SecondOpenOfStoreInUseFails) {
  RocksDbRoom room;
  auto store = room.open();
  const auto second = open_rocksdb_store(room.directory());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ckpt::ErrorCode::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(room.directory() + ".broken"));
  EXPECT_TRUE(store->write({{Family::kMeta, "a", "1"}}).ok());
}

}  // namespace
}  // namespace ckptd
