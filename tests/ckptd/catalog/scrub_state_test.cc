// The state of scrub in the catalog: kept in full, and safe to read from any bytes.
#include "ckptd/catalog/scrub_state.h"

#include <gtest/gtest.h>

#include "ckptd/catalog/catalog.h"
#include "ckptd/catalog/kv_store.h"

namespace ckptd {
namespace {

TEST(ScrubState, ReportsErrorIfStoreIsUnreadable) {
  const auto image = std::make_shared<MemoryKvImage>();
  ASSERT_TRUE(Catalog(make_memory_store(image)).set_scrub_state({.read_back_sequence = 1}).ok());
  const auto error = ckpt::make_error(ckpt::ErrorCode::kUnavailable, "no descriptors");
  const Catalog catalog(make_memory_store(image));
  image->set_reads(error);
  EXPECT_FALSE(catalog.scrub_state().ok());
  image->set_reads({});
}

TEST(ScrubState, KeepsAllFieldsAndReadsCorruptBytesSafely) {
  const auto image = std::make_shared<MemoryKvImage>();
  const ScrubState state{
      .last = {.number = 3, .began_ns = 1, .ended_ns = 2, .checked_bytes = 4, .commits = 5},
      .pass = ScrubPass{.number = 4, .bytes_per_second = 6, .cursor = {7, 8, 9, 10}},
      .read_back_sequence = 11,
      .damages = {{"tiny",
                   1,
                   5,
                   "trainer",
                   "segment 1 offset 4096: CRC32C mismatch",
                   12,
                   2,
                   {14, 15, 16, 17, 18, 19, 20}}},
      .damages_left_out = 13};
  const auto read = [&] { return Catalog(make_memory_store(image)).scrub_state().value(); };
  EXPECT_EQ(read(), std::nullopt);
  ASSERT_TRUE(Catalog(make_memory_store(image)).set_scrub_state(state).ok());
  EXPECT_EQ(read(), state);
  const auto store = make_memory_store(image);
  const std::string value = store->get(Family::kMeta, "scrub").value().value();
  const auto write = [&](const std::string& bytes) {
    ASSERT_TRUE(store->write({{Family::kMeta, "scrub", bytes}}).ok());
  };
  for (size_t length = 0; length < value.size(); ++length) {
    write(value.substr(0, length));
    read();  // must return, whatever the bytes
    if (length < value.size() / 2) {
      EXPECT_EQ(read(), std::nullopt) << length << " bytes";
    }
  }
  for (size_t at = 0; at < value.size(); ++at) {
    for (const int bits : {0x01, 0x80, 0xff}) {
      std::string flipped = value;
      flipped[at] = static_cast<char>(flipped[at] ^ bits);
      write(flipped);
      read();
    }
  }
}

}  // namespace
}  // namespace ckptd
