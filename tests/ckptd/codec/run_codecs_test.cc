#include "ckptd/codec/run_codecs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ckptd/codec/slab_sampler.h"
#include "ckptd/limits.h"
#include "formats/base/crc32c.h"
#include "tests/ckptd/codec/floats.h"

namespace ckptd {
namespace {

using ckpt::DType;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t kMebibyte = 1u << 20;
constexpr CodecFigures kHalf{.ratio = 0.5, .bytes_per_second = 300e6};

// Two layers of two experts: weights and optimizer, 16 MiB each, and the trainer's own unit.
UnitSpecList model() {
  std::vector<ckpt::UnitSpec> units;
  for (int layer = 0; layer < 2; ++layer) {
    for (int expert = 0; expert < 2; ++expert) {
      for (const char* part : {"weights", "optimizer"}) {
        units.push_back({.name = fmt::format("layers.{}.experts.{}.{}", layer, expert + 9, part),
                         .bytes = 16 * kMebibyte,
                         .tensors = {{"w", DType::kF32, {4 * kMebibyte}, 0}}});
      }
    }
  }
  units.push_back({.name = "trainer", .bytes = 100});
  return std::make_shared<const std::vector<ckpt::UnitSpec>>(std::move(units));
}

const std::vector<ckpt::UnitId> kAll = {0, 1, 2, 3, 4, 5, 6, 7, 8};
const EncodeConditions kSlow{.disk_bytes_per_second = 50e6, .threads = 2, .slab_bytes = kMebibyte};
const EncodeConditions kFast{.disk_bytes_per_second = 5e9, .threads = 2, .slab_bytes = kMebibyte};

TEST(UnitKinds, DifferInMoreThanNumbers) {
  const UnitKinds kinds(*model());
  ASSERT_EQ(kinds.size(), 3u);
  EXPECT_EQ(kinds.name(0), "layers.*.experts.*.weights");
  EXPECT_EQ(kinds.of(6), kinds.of(0));
  EXPECT_EQ(kinds.name(kinds.of(1)), "layers.*.experts.*.optimizer");
  EXPECT_EQ(kinds.name(kinds.of(8)), "trainer");
}

TEST(UnitKinds, AreBounded) {
  std::vector<ckpt::UnitSpec> units(1000);
  for (size_t i = 0; i < units.size(); ++i) {
    units[i].name = std::string(i % 200 + 1, 'a') + (i < 500 ? "x" : "y");
  }
  const UnitKinds kinds(units);
  EXPECT_EQ(kinds.size(), limits::kUnitKindsMax);
  EXPECT_EQ(kinds.name(kinds.of(999)), "(others)");
}

TEST(RunCodecs, MeasureFirst) {
  RunCodecs codecs(model(), {CodecChoice::kAuto});
  RunCodecs::Snapshot first = codecs.begin(kAll, kSlow);
  EXPECT_EQ(first.plan, nullptr);
  EXPECT_THAT(first.samples, ElementsAre(0, 1, 2));
  EXPECT_THAT(first.changed, IsEmpty());
  codecs.measured(0, kHalf);
  codecs.measured(1, {.ratio = 0.99, .bytes_per_second = 900e6});
  const RunCodecs::Snapshot second = codecs.begin(kAll, kSlow);
  ASSERT_NE(second.plan, nullptr);
  EXPECT_EQ(second.plan->chosen,
            (std::vector<bool>{true, false, true, false, true, false, true, false, false}));
  EXPECT_THAT(second.samples, ElementsAre(2)) << "there was nothing to measure of it";
  EXPECT_THAT(second.changed, ElementsAre(0));
  EXPECT_THAT(codecs.begin(kAll, kSlow).changed, IsEmpty());
  const RunCodecs::Snapshot fast = codecs.begin(kAll, kFast);
  EXPECT_EQ(fast.plan, nullptr);
  EXPECT_THAT(fast.changed, ElementsAre(0));
}

TEST(RunCodecs, MeasureAnewNowAndThen) {
  RunCodecs codecs(model(), {CodecChoice::kAuto});
  EXPECT_THAT(codecs.begin({0}, kSlow).samples, ElementsAre(0));
  codecs.measured(0, kHalf);
  for (uint64_t i = 1; i < limits::kCodecSampleEvery; ++i) {
    EXPECT_THAT(codecs.begin({0}, kSlow).samples, IsEmpty());
  }
  EXPECT_THAT(codecs.begin({0}, kSlow).samples, ElementsAre(0));
  codecs.measured(0, {.ratio = 1, .bytes_per_second = 100e6});
  EXPECT_DOUBLE_EQ(codecs.kind(0).figures->ratio, 0.75);
  EXPECT_DOUBLE_EQ(codecs.kind(0).figures->bytes_per_second, 200e6);
}

TEST(RunCodecs, DoWhatTheTrainerSays) {
  std::vector<CodecChoice> choices(9, CodecChoice::kAuto);
  choices[0] = CodecChoice::kNone;
  choices[8] = CodecChoice::kZstd;
  RunCodecs codecs(model(), choices);
  RunCodecs::Snapshot snapshot = codecs.begin(kAll, kFast);
  ASSERT_NE(snapshot.plan, nullptr);
  EXPECT_EQ(snapshot.plan->chosen,
            (std::vector<bool>{false, false, false, false, false, false, false, false, true}));
  EXPECT_THAT(snapshot.samples, ElementsAre(0, 1)) << "not what is decided already";
  codecs.measured(0, kHalf);
  codecs.measured(1, kHalf);
  snapshot = codecs.begin(kAll, kSlow);
  EXPECT_EQ(snapshot.plan->chosen,
            (std::vector<bool>{false, true, true, true, true, true, true, true, true}));
  EXPECT_THAT(codecs.automatic(), SizeIs(2));
}

TEST(RunCodecs, WithoutAutoMeasureNothing) {
  RunCodecs none(model(), {CodecChoice::kNone});
  EXPECT_EQ(none.begin(kAll, kSlow).plan, nullptr);
  EXPECT_THAT(none.begin(kAll, kSlow).samples, IsEmpty());
  RunCodecs zstd(model(), {CodecChoice::kZstd});
  EXPECT_EQ(zstd.begin(kAll, kFast).plan->chosen, std::vector<bool>(9, true));
  EXPECT_THAT(zstd.automatic(), IsEmpty());
}

// ---- samples ------------------------------------------------------------------------------------

// A clock that advances by `by` at each reading.
Stopwatch ticking(std::chrono::nanoseconds by) {
  return [now = std::chrono::nanoseconds(0), by]() mutable { return now += by; };
}

struct Sampled {
  std::vector<std::byte> payload;
  std::vector<ckpt::ExtentFragment> fragments;

  void add(ckpt::UnitId unit, uint64_t offset, const std::vector<std::byte>& bytes) {
    fragments.push_back(
        {.unit = unit, .offset = offset, .length = bytes.size(), .payload_offset = payload.size()});
    payload.insert(payload.end(), bytes.begin(), bytes.end());
  }
  // Feeds the sampler in the order and sizes in which check_payload() reads a slab.
  void show(SlabSampler& sampler) const {
    for (const ckpt::ExtentFragment& fragment : fragments) {
      const ByteView bytes = ByteView(payload).subspan(fragment.payload_offset, fragment.length);
      for (uint64_t to = 0; to < bytes.size();) {
        to = std::min<uint64_t>(to + (64 << 10), bytes.size());
        sampler.look(fragment, bytes, to);
      }
    }
  }
};

std::map<uint32_t, CodecFigures> measure_all(SlabSampler& sampler, const UnitSpecList& units,
                                             const Stopwatch& stopwatch) {
  std::map<uint32_t, CodecFigures> figures;
  while (sampler.bytes() > 0) {
    const SlabSampler::Measured measured = sampler.measure(units, stopwatch);
    EXPECT_TRUE(figures.emplace(measured.kind, measured.figures).second) << "twice";
  }
  return figures;
}

TEST(SlabSampler, TakesALittleOfEachKindThatIsWanted) {
  Sampled slab;
  slab.add(0, 0, float_bytes(3 * kMebibyte + 999, 1));
  slab.add(1, 5 * kMebibyte, noise_bytes(2 * kMebibyte + 3, 2));
  slab.add(2, 0, float_bytes(kMebibyte, 3));
  slab.add(8, 0, noise_bytes(100, 4));
  const UnitSpecList units = model();
  SlabSampler sampler(slab.fragments, UnitKinds(*units), {0, 1});
  EXPECT_EQ(sampler.bytes(), 0u);
  slab.show(sampler);
  // Four samples in units 0 and 2, which are one kind, and two in unit 1.
  EXPECT_EQ(sampler.bytes(), 6 * kMebibyte);
  const auto figures = measure_all(sampler, units, ticking(std::chrono::milliseconds(1)));
  ASSERT_THAT(figures, SizeIs(2));
  EXPECT_LT(figures.at(0).ratio, 0.9);
  EXPECT_EQ(figures.at(1).ratio, 1);
  // Each sample is 1 MiB and takes 1 ms.
  EXPECT_NEAR(figures.at(0).bytes_per_second, kMebibyte * 1e3, 1);
}

TEST(SlabSampler, LivesWithSmallFragments) {
  Sampled slab;
  for (uint64_t i = 0; i < 300; ++i) slab.add(0, i * 1000, float_bytes(1000, i));
  slab.add(8, 3, noise_bytes(7, 4));
  const UnitSpecList units = model();
  SlabSampler sampler(slab.fragments, UnitKinds(*units), {0, 1, 2});
  slab.show(sampler);
  EXPECT_EQ(sampler.bytes(), 1000 + 7u);
  const auto figures = measure_all(sampler, units, ticking(std::chrono::nanoseconds(0)));
  EXPECT_THAT(figures, SizeIs(2)) << "there is nothing of the third kind";
  for (const auto& [kind, measured] : figures) {
    EXPECT_GT(measured.bytes_per_second, 0) << kind;
  }
}

TEST(SlabSampler, WithoutBytesHasNothingToMeasure) {
  Sampled slab;
  slab.add(0, 0, float_bytes(kMebibyte, 1));
  SlabSampler sampler(slab.fragments, UnitKinds(*model()), {0});
  EXPECT_EQ(sampler.bytes(), 0u);
}

}  // namespace
}  // namespace ckptd
