#include "ckptd/io/io_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/ckptd/io/disk_fixture.h"
#include "tests/ckptd/io/paced_disk.h"

namespace ckptd {
namespace {

using ::testing::HasSubstr;

TEST(IoShape, TextRoundTrips) {
  for (const char* text : {"32x4MiB", "1x64KiB", "256x64MiB", "8x1028KiB"}) {
    const auto shape = parse_io_shape(text);
    ASSERT_TRUE(shape.ok()) << text;
    EXPECT_EQ(to_text(*shape), text);
  }
  EXPECT_EQ(*parse_io_shape("32x4MiB"), IoShape{});
  EXPECT_EQ(*parse_io_shape_choice("auto"), std::nullopt);
  EXPECT_EQ(*parse_io_shape_choice("8x16MiB"), (IoShape{.depth = 8, .bytes = 16u << 20}));
}

TEST(IoShape, ErrorQuotesInvalidText) {
  for (const char* text :
       {"", "x", "32", "x4MiB", "32x", "0x4MiB", "257x4MiB", "32x4", "32x60KiB", "32x65KiB",
        "32x65MiB", "-1x4MiB", "99999999999x4MiB", "32 x4MiB", "32x4MiB ", "Auto"}) {
    const auto shape = parse_io_shape_choice(text);
    ASSERT_FALSE(shape.ok()) << text;
    EXPECT_EQ(shape.error().code, ckpt::ErrorCode::kInvalidArgument);
    EXPECT_THAT(shape.error().message, HasSubstr(std::string("\"") + text + "\""));
  }
}

// A disk by its price of a write; nothing else about it is real.
class IoShapeMeasurement : public ::testing::Test {
 protected:
  void take(std::function<double(uint64_t)> seconds) {
    disk_.set_write_seconds([this, seconds = std::move(seconds)](uint64_t bytes) {
      written_ += bytes;
      return seconds(bytes);
    });
  }
  Stopwatch clock() {
    return [this] { return disk_.read_clock(std::chrono::nanoseconds(0)); };
  }
  IoShape find() { return find_io_shape(disk_, folder_.root(), 0, clock()); }
  std::string remembered() const {
    std::ifstream file(folder_.root() + "/io-shape");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void expect_clean() {
    EXPECT_EQ(disk_.in_flight(), 0u);
    EXPECT_THAT(*disk_.list(""), ::testing::IsEmpty());
  }

  static constexpr double kByte = 1 / 3e9;  // seconds
  ckpt::test::TempFolder folder_;
  MemoryDisk memory_{MemoryDisk::Options{.seed = 1}};
  PacedDisk disk_{memory_, 1e9};
  uint64_t written_ = 0;
};

TEST_F(IoShapeMeasurement, PrefersDefaultShapeIfNoneIsFaster) {
  take([](uint64_t bytes) { return static_cast<double>(bytes) * kByte; });
  const auto measured = measure_io_shape(disk_, 0, clock());
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  EXPECT_EQ(measured->shape, IoShape{});
  EXPECT_NEAR(measured->bytes_per_second, 3e9, 1e7);
  EXPECT_EQ(written_, 1u << 30);
  expect_clean();
}

TEST_F(IoShapeMeasurement, TakesLargerWritesIfEachHasFixedCost) {
  take([](uint64_t bytes) { return 1e-3 + static_cast<double>(bytes) * kByte; });
  EXPECT_EQ(find(), (IoShape{.depth = 8, .bytes = 16u << 20}));
  expect_clean();
}

TEST_F(IoShapeMeasurement, TakesSmallerWritesWhereLargeOnesAreSlow) {
  take([](uint64_t bytes) {
    return static_cast<double>(bytes) * kByte * (bytes > (1u << 20) ? 1.2 : 1);
  });
  EXPECT_EQ(find(), (IoShape{.depth = 32, .bytes = 1u << 20}));
}

TEST_F(IoShapeMeasurement, EndsSoonOnASlowDisk) {
  take([](uint64_t bytes) { return static_cast<double>(bytes) / 0.1e9; });
  EXPECT_EQ(find(), IoShape{});
  EXPECT_EQ(written_, 128u << 20);
  expect_clean();
}

TEST_F(IoShapeMeasurement, OnlyRemovesLeftoverFileOnFullDisk) {
  take([](uint64_t) { return -1.0; });
  disk_.close(disk_.adopt(std::move(disk_.create_file("calibration.bytes", 0)).value()));
  const auto measured = measure_io_shape(disk_, UINT64_MAX, clock());
  ASSERT_TRUE(measured.ok());
  EXPECT_EQ(measured->bytes_per_second, 0);
  EXPECT_EQ(written_, 0u);
  expect_clean();
}

TEST_F(IoShapeMeasurement, FailureFallsBackToDefaultShape) {
  take([](uint64_t) { return -1.0; });
  EXPECT_FALSE(measure_io_shape(disk_, 0, clock()).ok());
  EXPECT_EQ(find(), IoShape{});
  EXPECT_EQ(remembered(), "");
  expect_clean();
}

TEST_F(IoShapeMeasurement, RunsOncePerDevice) {
  take([](uint64_t bytes) { return 1e-3 + static_cast<double>(bytes) * kByte; });
  const IoShape found = find();
  EXPECT_THAT(remembered(), ::testing::StartsWith("8x16MiB memory "));
  written_ = 0;
  EXPECT_EQ(find(), found);
  EXPECT_EQ(written_, 0u);
}

TEST_F(IoShapeMeasurement, RunsAgainIfStoredResultIsInvalid) {
  take([](uint64_t bytes) { return static_cast<double>(bytes) * kByte; });
  for (const std::string text : {"", "8x16MiB", "8x16MiB uring 1:1\n", "900x1GiB memory 1:1\n",
                                 "\0\xff x y z\n\n\n", "8x16MiB memory 1:1"}) {
    std::ofstream(folder_.root() + "/io-shape") << text;
    written_ = 0;
    EXPECT_EQ(find(), IoShape{});
    EXPECT_EQ(written_, 1u << 30) << text;
  }
  std::ofstream(folder_.root() + "/io-shape") << std::string(1 << 20, '8');
  EXPECT_EQ(find(), IoShape{});
  EXPECT_THAT(remembered(), ::testing::StartsWith("32x4MiB memory "));
}

TEST_F(IoShapeMeasurement, FifoInPlaceOfResultDoesNotBlock) {
  take([](uint64_t bytes) { return static_cast<double>(bytes) * kByte; });
  for (const char* name : {"/io-shape", "/io-shape.new"}) {
    ASSERT_EQ(::mkfifo((folder_.root() + name).c_str(), 0600), 0);
    EXPECT_EQ(find(), IoShape{});
    EXPECT_THAT(remembered(), ::testing::StartsWith("32x4MiB memory "));
    std::filesystem::remove(folder_.root() + "/io-shape");
  }
}

class RealDisk : public DiskTest {};

TEST_P(RealDisk, MeasurementLeavesNoFile) {
  const auto measured = measure_io_shape(*disk_, 0, [] {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch());
  });
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  EXPECT_GT(measured->bytes_per_second, 0);
  EXPECT_THAT(*disk_->list(""), ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Engines, RealDisk, ::testing::Values("uring", "pwritev"));

}  // namespace
}  // namespace ckptd
