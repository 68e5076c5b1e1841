// Numbers of jobs that read.
#include "ckptd/readers/reader_numbers.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

namespace ckptd {
namespace {

TEST(ReaderNumbers, OldestIsNextNumberWithoutReaders) {
  ReaderNumbers numbers;
  EXPECT_EQ(numbers.oldest(), numbers.next());
  numbers.begin().end();
  EXPECT_EQ(numbers.next(), 2u) << "a number is used once";
  EXPECT_EQ(numbers.oldest(), 2u);
}

TEST(ReaderNumbers, TheOldestReaderCountsUntilItEnds) {
  ReaderNumbers numbers;
  std::optional<ReaderNumbers::Reading> first = numbers.begin();
  ReaderNumbers::Reading second = numbers.begin();
  const ReaderNumbers::Reading third = numbers.begin();
  EXPECT_EQ(numbers.oldest(), 1u);
  second.end();
  EXPECT_EQ(numbers.oldest(), 1u);
  first.reset();
  EXPECT_EQ(numbers.oldest(), 3u);
  EXPECT_EQ(numbers.next(), 4u);
}

TEST(ReaderNumbers, AMovedReaderEndsOnce) {
  ReaderNumbers numbers;
  ReaderNumbers::Reading kept;
  {
    ReaderNumbers::Reading begun = numbers.begin();
    kept = std::move(begun);
  }
  EXPECT_EQ(numbers.oldest(), 1u);
  kept = ReaderNumbers::Reading();
  EXPECT_EQ(numbers.oldest(), 2u);
}

}  // namespace
}  // namespace ckptd
