#include "ckptd/codec/encode_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ckptd/limits.h"
#include "formats/base/assert.h"

namespace ckptd {
namespace {

using Wish = EncodeShare::Wish;

// Derating of a measured thread speed: checksums and trainers compete for the processor.
constexpr double kSpeedBelieved = 0.8;
// Fraction of the time without encoding.
constexpr double kGainMin = 0.05;

double saved_per_thread_second(const EncodeShare& share) {
  return (1 - share.figures->ratio) * share.figures->bytes_per_second;
}

// Shares that may be encoded, the best first.
std::vector<size_t> candidates_of(const std::vector<EncodeShare>& shares) {
  std::vector<size_t> candidates;
  candidates.reserve(shares.size());
  for (size_t i = 0; i < shares.size(); ++i) {
    const EncodeShare& share = shares[i];
    if (share.wish != Wish::kIfSooner || !share.figures || share.bytes == 0) continue;
    if (share.figures->ratio <= limits::kAutoRatioMax) candidates.push_back(i);
  }
  std::stable_sort(candidates.begin(), candidates.end(), [&shares](size_t a, size_t b) {
    return saved_per_thread_second(shares[a]) > saved_per_thread_second(shares[b]);
  });
  return candidates;
}

// A thread takes the next slab when it has encoded one, so some threads may idle during the last
// slab. In any order all slabs are done by `any_order` (R. L. Graham, "Bounds for certain
// multiprocessing anomalies", 1966); slabs of similar cost are done by `in_rounds`.
double seconds_of_threads(double all, double slowest_slab, double slabs, double threads) {
  const double any_order = (all - slowest_slab) / threads + slowest_slab;
  const double in_rounds = std::ceil(slabs / threads) * slowest_slab;
  return std::max(all / threads, std::min(any_order, in_rounds));
}

}  // namespace

// The largest of three lower bounds is a good estimate: the disk never idles; the threads never
// idle, and then the disk writes the last slab; the disk has no encoded bytes until the first slab
// is encoded.
double seconds_to_durable(const std::vector<EncodeShare>& shares, const std::vector<bool>& encoded,
                          const EncodeConditions& conditions) {
  CKPT_ASSERT(encoded.size() == shares.size() && conditions.disk_bytes_per_second > 0);
  double written = static_cast<double>(conditions.queued_bytes);
  double written_encoded = 0;
  double raw_encoded = 0;
  double thread_seconds = 0;
  double first = 0;
  double last = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const EncodeShare& share = shares[i];
    const auto bytes = static_cast<double>(share.bytes);
    if (!encoded[i] || !share.figures) {
      written += bytes;
      continue;
    }
    const auto slab = static_cast<double>(std::min(share.bytes, conditions.slab_bytes));
    written_encoded += bytes * share.figures->ratio;
    raw_encoded += bytes;
    thread_seconds += bytes / share.figures->bytes_per_second;
    first = std::max(first, slab / share.figures->bytes_per_second);
    last = std::max(last, slab * share.figures->ratio);
  }
  const double slabs = std::ceil(raw_encoded / static_cast<double>(conditions.slab_bytes));
  const double threads = std::max(1U, conditions.threads);
  const double disk = conditions.disk_bytes_per_second;
  return std::max({(written + written_encoded) / disk,
                   seconds_of_threads(thread_seconds, first, slabs, threads) + last / disk,
                   first + written_encoded / disk});
}

std::vector<bool> choose_encoded(const std::vector<EncodeShare>& shares,
                                 const EncodeConditions& conditions) {
  std::vector<bool> always(shares.size());
  std::transform(shares.begin(), shares.end(), always.begin(),
                 [](const EncodeShare& share) { return share.wish == Wish::kAlways; });
  if (conditions.disk_bytes_per_second <= 0) return always;
  std::vector<EncodeShare> believed = shares;
  bool any_so_far = false;
  for (EncodeShare& share : believed) {
    any_so_far = any_so_far || (share.encoded_so_far && share.wish == Wish::kIfSooner);
    if (share.figures && !share.encoded_so_far) share.figures->bytes_per_second *= kSpeedBelieved;
  }
  const double without = seconds_to_durable(believed, always, conditions);
  std::vector<bool> encoded = always;
  double seconds = without;
  for (const size_t candidate : candidates_of(believed)) {
    encoded[candidate] = true;
    const double with = seconds_to_durable(believed, encoded, conditions);
    if (with < seconds) {
      seconds = with;
    } else {
      encoded[candidate] = false;
    }
  }
  return seconds < without * (any_so_far ? 1 : 1 - kGainMin) ? encoded : always;
}

}  // namespace ckptd
