#include "bench/service/codecs.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <tuple>

#include "bench/common/paired.h"
#include "bench/common/raw_disk.h"
#include "bench/common/report.h"
#include "bench/common/scratch.h"
#include "bench/common/usage.h"
#include "bench/service/trained_state.h"
#include "ckptd/codec/slab_encoder.h"
#include "ckptd/io/aligned_buffer.h"
#include "ckptd/limits.h"
#include "formats/base/crc32c.h"

namespace bench {

using ckpt::ByteView;
using ckpt::Codec;
using ckpt::ExtentFragment;
using ckpt::MutableByteView;
using ckpt::Result;
using ckpt::Status;
using nlohmann::json;

namespace {

using Bytes = std::vector<std::byte>;

// One kind of state, at the last step and at earlier ones.
struct StateKind {
  std::string name;
  ckpt::DType dtype = ckpt::DType::kF32;
  Bytes now;
  std::map<uint64_t, Bytes> earlier;  // key: number of steps before `now`
};

std::vector<StateKind> kinds_of(const std::map<uint64_t, TrainedState>& states) {
  using Of = std::function<Bytes(const TrainedState&)>;
  const std::vector<std::tuple<std::string, ckpt::DType, Of>> names = {
      {"weights bf16", ckpt::DType::kBF16,
       [](const auto& state) { return as_bf16(state.weights); }},
      {"weights fp32", ckpt::DType::kF32, [](const auto& state) { return state.weights; }},
      {"Adam m", ckpt::DType::kF32, [](const auto& state) { return state.first_moments; }},
      {"Adam v", ckpt::DType::kF32, [](const auto& state) { return state.second_moments; }}};
  const auto& [last, after] = *states.rbegin();
  std::vector<StateKind> kinds;
  kinds.reserve(names.size());
  for (const auto& [name, dtype, of] : names) {
    kinds.push_back({name, dtype, of(after), {}});
    for (const auto& [step, state] : states) {
      if (step != last) kinds.back().earlier[last - step] = of(state);
    }
  }
  return kinds;
}

// Input of one row: the bytes, the codec they are registered with, and the base of the delta.
struct Subject {
  const StateKind& kind;
  std::string codec;
  uint64_t steps_apart = 0;     // 0: no delta
  const Bytes* base = nullptr;  // of a delta
  bool planes = true;           // the unit is registered with its tensor
};

ckptd::UnitSpecList registered(const Subject& subject) {
  ckpt::UnitSpec unit{.name = "unit", .bytes = subject.kind.now.size()};
  const uint64_t elements = unit.bytes / ckpt::dtype_bytes(subject.kind.dtype);
  if (subject.planes) unit.tensors.push_back({"tensor", subject.kind.dtype, {elements}, 0});
  return std::make_shared<const std::vector<ckpt::UnitSpec>>(1, unit);
}

// Encodes a slab for the disk and decodes it again, with the daemon's own code.
class RoundTrip {
 public:
  explicit RoundTrip(const Subject& subject)
      : subject_(subject),
        units_(ckptd::encode_all(registered(subject), /*deltas=*/subject.base != nullptr)),
        out_(subject.kind.now.size()),
        back_(subject.kind.now.size()) {}

  // Includes the checksums that SlabEncoder computes over the copy and over the decoded bytes.
  Status encode() {
    const Bytes& now = subject_.kind.now;
    if (fragments_.empty()) {
      fragments_.push_back({.length = now.size(), .crc32c = ckpt::base::crc32c(now)});
    }
    ckptd::SlabEncoder encoder(now, fragments_, units_);
    constexpr uint64_t kStep = ckptd::limits::kEncodeStepBytes;
    while (!encoder.done()) CKPT_TRY(encoder.step(kStep, out_, bases_of(encoder, kStep)));
    stored_ = encoder.fragments();
    stored_bytes_ = encoder.stored_bytes();
    return {};
  }

  // Includes the checksums that a restore verifies before and after decoding.
  Status decode() {
    ckptd::ZstdDecoder decoder;
    for (const ExtentFragment& fragment : stored_) {
      const ByteView from =
          ByteView(out_).subspan(fragment.payload_offset, fragment.stored_bytes());
      const MutableByteView to = MutableByteView(back_).subspan(fragment.offset, fragment.length);
      bool whole = ckpt::base::crc32c(from) == fragment.stored_crc32c();
      if (fragment.codec == 0) {
        std::copy(from.begin(), from.end(), to.begin());
      } else {
        CKPT_TRY(decoder.decode(static_cast<Codec>(fragment.codec), from, to));
        if (ckpt::is_delta(fragment.codec)) {
          const ByteView base = ByteView(*subject_.base).subspan(fragment.offset, fragment.length);
          whole = whole && ckpt::base::crc32c(base) == fragment.base_crc32c;
          ckptd::xor_bytes(to, base);
        }
        whole = whole && ckpt::base::crc32c(to) == fragment.crc32c;
      }
      if (!whole) return ckpt::make_error(ckpt::ErrorCode::kCorrupt, "a checksum does not match");
    }
    return {};
  }

  uint64_t stored_bytes() const { return stored_bytes_; }
  bool is_lossless() const { return back_ == subject_.kind.now; }

 private:
  // Claims a stored base of twice its real size, so that SlabEncoder always chooses the delta.
  ckptd::BasePieces bases_of(const ckptd::SlabEncoder& encoder, uint64_t step) const {
    ckptd::BasePieces bases;
    if (subject_.base == nullptr) return bases;
    for (const ckpt::UnitRange& range : encoder.next_ranges(step)) {
      const ByteView bytes = ByteView(*subject_.base).subspan(range.offset, range.length);
      bases.push_back({.range = range,
                       .stored_bytes = 2 * range.length,
                       .crc32c = ckpt::base::crc32c(bytes),
                       .bytes = {bytes.begin(), bytes.end()}});
    }
    return bases;
  }

  const Subject& subject_;
  const ckptd::EncodePlan units_;
  Bytes out_;
  Bytes back_;
  std::vector<ExtentFragment> fragments_;  // as sealed
  std::vector<ExtentFragment> stored_;
  uint64_t stored_bytes_ = 0;
};

// Bytes per second of CPU time. Repeats the run until it has used at least `seconds` of CPU time.
// CPU time hardly depends on other processes of the machine.
Result<double> rate_of(uint64_t bytes, double seconds_min, const std::function<Status()>& run) {
  CKPT_TRY(run());  // warm-up, not timed: touches the memory for the first time
  const double began = own_cpu_seconds();
  for (uint64_t runs = 1;; ++runs) {
    CKPT_TRY(run());
    const double seconds = own_cpu_seconds() - began;
    if (seconds > 0 && seconds >= seconds_min) return static_cast<double>(bytes * runs) / seconds;
  }
}

Result<json> measure(const Subject& subject, double seconds_min) {
  const uint64_t bytes = subject.kind.now.size();
  RoundTrip trip(subject);
  CKPT_ASSIGN(const double encode, rate_of(bytes, seconds_min, [&] { return trip.encode(); }));
  CKPT_ASSIGN(const double decode, rate_of(bytes, seconds_min, [&] { return trip.decode(); }));
  if (!trip.is_lossless()) {
    return ckpt::make_error(ckpt::ErrorCode::kCorrupt, "{}, {}: not what was encoded",
                            subject.kind.name, subject.codec);
  }
  return json{{"state", subject.kind.name},
              {"codec", subject.codec},
              {"steps_apart", subject.steps_apart},
              {"bytes", bytes},
              {"stored_bytes", trip.stored_bytes()},
              {"ratio", static_cast<double>(trip.stored_bytes()) / static_cast<double>(bytes)},
              {"encode_bytes_per_second", encode},
              {"decode_bytes_per_second", decode}};
}

// Speedup until a long snapshot is durable, relative to no encoding. Encoding by `threads` threads
// overlaps the writes, so the slower of the two decides.
double times_as_fast(const json& row, double disk, unsigned threads) {
  const double encode = row.at("encode_bytes_per_second").get<double>() * threads;
  return std::min(encode, disk / row.at("ratio").get<double>()) / disk;
}

// Median write rate of the disk, in bytes per second: new files, each synced.
Result<double> disk_rate(const CodecsOptions& options) {
  CKPT_ASSIGN(const ScratchDirectory scratch, ScratchDirectory::make(options.directory));
  ckptd::AlignedBuffer pool(64ull << 20);
  fill_random(pool.bytes(), 7);
  LimitFiles files(scratch.path());
  std::vector<double> rates;
  for (int i = 0; i < 5; ++i) {
    CKPT_ASSIGN(const double rate, raw_write(files.next(), options.disk_bytes, {}, pool.bytes()));
    rates.push_back(rate);
  }
  files.clear();
  return median(rates);
}

Result<double> memcpy_rate(const Bytes& from, double seconds_min) {
  Bytes to(from.size());
  return rate_of(from.size(), seconds_min, [&] {
    std::copy(from.begin(), from.end(), to.begin());
    return Status();
  });
}

std::vector<Subject> subjects_of(const StateKind& kind) {
  std::vector<Subject> subjects = {{.kind = kind, .codec = "zstd", .planes = false},
                                   {.kind = kind, .codec = "planes + zstd"}};
  for (const auto& [apart, base] : kind.earlier) {
    subjects.push_back(
        {.kind = kind, .codec = "xor + planes + zstd", .steps_apart = apart, .base = &base});
  }
  return subjects;
}

}  // namespace

Result<json> bench_codecs(const CodecsOptions& options) {
  std::set<uint64_t> at = {options.steps};
  for (const uint64_t apart :
       options.apart.empty() ? std::vector<uint64_t>{1, 10} : options.apart) {
    if (apart == 0 || apart >= options.steps) {
      return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                              "a delta over {} of {} steps: there is no such version", apart,
                              options.steps);
    }
    at.insert(options.steps - apart);
  }
  say(fmt::format("training {} steps", options.steps));
  CKPT_ASSIGN(const auto states, train_states(options.data, at));
  const std::vector<StateKind> kinds = kinds_of(states);
  say("the disk");
  CKPT_ASSIGN(const double disk, disk_rate(options));
  CKPT_ASSIGN(const double memcpy, memcpy_rate(kinds.front().now, options.seconds_min));
  const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, 4u);
  json rows = json::array();
  for (const StateKind& kind : kinds) {
    for (const Subject& subject : subjects_of(kind)) {
      say(fmt::format("{}, {}", kind.name, subject.codec));
      CKPT_ASSIGN(json row, measure(subject, options.seconds_min));
      row["times_as_fast_one_thread"] = times_as_fast(row, disk, 1);
      row["times_as_fast"] = times_as_fast(row, disk, threads);
      rows.push_back(std::move(row));
    }
  }
  return json{{"bench", "codecs"},
              {"machine", machine(options.directory)},
              {"shape",
               {{"steps", options.steps},
                {"parameters", states.rbegin()->second.weights.size() / sizeof(float)},
                {"piece_bytes", ckpt::kEncodedFragmentBytesMax},
                {"zstd_level", ckptd::limits::kZstdLevel},
                {"disk_bytes", options.disk_bytes}}},
              {"memcpy_bytes_per_second", memcpy},
              {"disk_bytes_per_second", disk},
              {"threads", threads},
              {"rows", std::move(rows)}};
}

std::string codecs_text(const json& document) {
  const auto mb = [](const json& value) { return value.get<double>() / 1e6; };
  std::string text = fmt::format(
      "memcpy {:.0f} MB/s and disk {:.0f} MB/s; encode and decode of one core; how many times as "
      "fast as without a snapshot is durable\n{:<14}{:<21}{:>6}{:>8}{:>13}{:>13}{:>14}{:>14}\n",
      mb(document.at("memcpy_bytes_per_second")), mb(document.at("disk_bytes_per_second")), "state",
      "codec", "apart", "ratio", "encode MB/s", "decode MB/s", "as fast, 1 thr",
      fmt::format("{} threads", document.at("threads").get<unsigned>()));
  for (const json& row : document.at("rows")) {
    text += fmt::format(
        "{:<14}{:<21}{:>6}{:>8.3f}{:>13.0f}{:>13.0f}{:>14.2f}{:>14.2f}\n",
        row.at("state").get<std::string>(), row.at("codec").get<std::string>(),
        row.at("steps_apart").get<uint64_t>(), row.at("ratio").get<double>(),
        mb(row.at("encode_bytes_per_second")), mb(row.at("decode_bytes_per_second")),
        row.at("times_as_fast_one_thread").get<double>(), row.at("times_as_fast").get<double>());
  }
  return text;
}

}  // namespace bench
