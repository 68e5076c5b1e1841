#include "ckptd/dedup/comparer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ckptd/codec/zstd_codec.h"
#include "ckptd/io/aligned_buffer.h"
#include "ckptd/limits.h"
#include "ckptd/safeguards.h"
#include "formats/base/crc32c.h"

namespace ckptd {

static_assert(limits::kComparedReadBytes % ckpt::kBlockBytes == 0);
static_assert(limits::kComparedReadBytes >= ckpt::kEncodedFragmentBytesMax + 2 * ckpt::kBlockBytes);

// One read in flight, and its results.
struct Comparer::Slot {
  bool busy = false;
  const DedupRead* read = nullptr;
  std::vector<DedupRead::Part> parts;  // parts that are still wanted
  SegmentHandle file;
  AlignedBuffer buffer;
  ZstdDecoder decoder;
  std::vector<std::byte> decoded;
  // Results.
  std::vector<std::pair<DedupRead::Part, ckpt::base::Hash128>> bases;
  std::vector<size_t> other_candidates;
  std::vector<size_t> other_extents;
};

struct Comparer::Job {
  ckpt::SnapshotKey snapshot;
  StagedSlab slab;
  std::vector<DedupCandidate> candidates;
  std::vector<DedupExtent> extents;
  Done on_done;
  Time since{};
  bool abandoned = false;
  bool timed_out = false;  // the wait limit is exceeded

  std::vector<DedupRead> reads;
  size_t next = 0;  // in reads
  // For deltas, by candidate and place: the hash of the base, from the slab's bytes or from disk,
  // whichever came first.
  std::map<std::pair<size_t, size_t>, ckpt::base::Hash128> bases;
  std::vector<bool> same;  // by candidate, as far as known
  std::array<Slot, limits::kComparedReadsPerSlab> slots;

  bool wanted(const DedupRead& read) const {
    const auto is_same = [this](size_t candidate) { return same[candidate]; };
    if (std::ranges::any_of(read.parts, is_same, &DedupRead::Part::candidate)) return true;
    return std::ranges::any_of(read.extents, [&](size_t extent) {
      for (size_t i = 0; i < candidates.size(); ++i) {
        if (same[i] && candidates[i].lies_in(extents[extent])) return true;
      }
      return false;
    });
  }
  void take(Slot& slot);
  bool busy() const { return std::ranges::any_of(slots, &Slot::busy); }
  // On the executor: touches only the slot.
  void compare(Slot& slot) const;
  bool part_is_same(Slot& slot, const DedupRead::Part& part, ByteView stored) const;
};

// Takes the results of a slot. If the read failed, its candidates count as different.
void Comparer::Job::take(Slot& slot) {
  for (const size_t candidate : slot.other_candidates) same[candidate] = false;
  for (const size_t extent : slot.other_extents) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (candidates[i].lies_in(extents[extent])) same[i] = false;
    }
  }
  for (const auto& [part, hash] : slot.bases) {
    const auto [known, first] = bases.try_emplace({part.candidate, part.place}, hash);
    if (first || known->second == hash || left_out(Safeguard::kComparedBytes)) continue;
    same[part.candidate] = false;
  }
}

void Comparer::Job::compare(Slot& slot) const {
  const ByteView stored = slot.buffer.bytes().first(slot.read->end - slot.read->begin);
  slot.bases.clear();
  slot.other_candidates.clear();
  slot.other_extents.clear();
  for (const size_t number : slot.read->extents) {
    const DedupExtent& extent = extents[number];
    const ByteView header =
        stored.subspan(extent.expected.offset - slot.read->begin, extent.header_bytes);
    const bool holds =
        check_extent_header(header, extent.expected, extent.header_crc32c, ExtentPart::kRest).ok();
    if (!holds) slot.other_extents.push_back(number);
  }
  for (const DedupRead::Part& part : slot.parts) {
    if (!part_is_same(slot, part, stored)) slot.other_candidates.push_back(part.candidate);
  }
}

// Reads the slab through bytes(): payload() would hide exchanged pages (staging.h). A delta and its
// base come with different reads, in any order. The slab has the same bytes if the XOR of slab and
// delta is the base. This compares hashes of both, because keeping one until the other arrives
// would take memory for the whole slab.
bool Comparer::Job::part_is_same(Slot& slot, const DedupRead::Part& part, ByteView stored) const {
  const DedupCandidate& candidate = candidates[part.candidate];
  const FragmentPlace place = part.of(candidate);
  const ckpt::ExtentFragment& fragment = slab.fragments()[candidate.fragment];
  const uint64_t in_slab = fragment.payload_offset + (place.offset - fragment.offset) + part.from;
  ByteView there = stored.subspan(place.payload_offset + part.from - slot.read->begin, part.bytes);
  if (place.codec != 0) {
    // A changed frame may still decode to the same bytes, but restores check its checksum.
    if (ckpt::base::crc32c(there) != place.encoded_crc32c) return false;
    slot.decoded.resize(place.length);
    if (!slot.decoder.decode(static_cast<Codec>(place.codec), there, slot.decoded).ok()) {
      return false;
    }
    there = slot.decoded;
  }
  if (part.base) {
    slot.bases.emplace_back(part, ckpt::base::hash128(there));
    return true;
  }
  const ByteView here = slab.bytes().subspan(in_slab, there.size());
  if (place.base) {
    xor_bytes(slot.decoded, here);
    slot.bases.emplace_back(part, ckpt::base::hash128(slot.decoded));
    return true;
  }
  return left_out(Safeguard::kComparedBytes) ||
         std::memcmp(here.data(), there.data(), there.size()) == 0;
}

Comparer::Comparer(const RestoreContext& context, Options options)
    : context_(context), options_(std::move(options)) {}

Comparer::~Comparer() { CKPT_ASSERT_MSG(idle(), "slabs were still being compared"); }

void Comparer::from_loop(const JobPointer& job, void (Comparer::*then)(const JobPointer&)) {
  context_.executor.run([] {}, [this, job, then] { (this->*then)(job); });
}

void Comparer::compare(const ckpt::SnapshotKey& snapshot, StagedSlab slab,
                       std::vector<DedupCandidate> candidates, std::vector<DedupExtent> extents,
                       Done on_done) {
  auto job = std::make_shared<Job>();
  job->snapshot = snapshot;
  job->slab = std::move(slab);
  DedupPlan plan = plan_dedup(candidates, extents,
                              {.read_bytes_max = limits::kComparedReadBytes,
                               .gap_bytes_max = limits::kComparedGapBytes,
                               .compared_bytes_min = options_.bytes_min});
  job->reads = std::move(plan.reads);
  job->same.assign(candidates.size(), true);
  for (const size_t scattered : plan.scattered) job->same[scattered] = false;
  job->candidates = std::move(candidates);
  job->extents = std::move(extents);
  job->on_done = std::move(on_done);
  job->since = now_;
  waiting_[snapshot.run].push_back(std::move(job));
  start_jobs();
}

Comparer::JobPointer Comparer::next_waiting() {
  auto run = waiting_.upper_bound(last_run_);
  if (run == waiting_.end()) run = waiting_.begin();
  last_run_ = run->first;
  JobPointer job = std::move(run->second.front());
  run->second.pop_front();
  if (run->second.empty()) waiting_.erase(run);
  return job;
}

void Comparer::start_jobs() {
  while (!waiting_.empty() && running_.size() < limits::kComparedSlabsMax) {
    running_.push_back(next_waiting());
    from_loop(running_.back(), &Comparer::continue_job);
  }
}

// A job that waited too long is written uncompared: the disk has more important work. As long as
// reads complete, jobs keep waiting, however many there are.
void Comparer::tick(Time now) {
  now_ = now;
  for (auto& [run, jobs] : waiting_) {
    for (const JobPointer& job : jobs) {
      job->timed_out |= now - std::max(job->since, last_read_) >= limits::kCompareWaitMax;
    }
    while (!jobs.empty() && jobs.front()->timed_out) {
      running_.push_back(std::move(jobs.front()));
      jobs.pop_front();
      from_loop(running_.back(), &Comparer::continue_job);
    }
  }
  std::erase_if(waiting_, [](const auto& run) { return run.second.empty(); });
}

void Comparer::continue_job(const JobPointer& job) {
  for (Slot& slot : job->slots) {
    if (slot.busy) continue;
    while (job->next < job->reads.size() && !job->wanted(job->reads[job->next])) ++job->next;
    if (job->abandoned || job->timed_out || job->next == job->reads.size()) break;
    slot.busy = true;
    slot.read = &job->reads[job->next++];
    context_.segments.open(
        slot.read->segment,
        [this, job, &slot](const Result<SegmentHandle>& file) { read(job, slot, file); });
  }
  if (!job->busy()) finish(job);
}

void Comparer::read(const JobPointer& job, Slot& slot, const Result<SegmentHandle>& file) {
  const uint64_t bytes = slot.read->end - slot.read->begin;
  if (!file.ok()) {
    return context_.executor.run(
        [] {}, [this, job, &slot, error = file.error()] { compare_read(job, slot, error); });
  }
  slot.file = *file;
  if (slot.buffer.size() < bytes) slot.buffer = AlignedBuffer(bytes);
  read_bytes_ += bytes;
  context_.disk.submit({.op = IoOp::kRead,
                        .file = **file,
                        .offset = slot.read->begin,
                        .memory = slot.buffer.bytes().first(bytes),
                        .on_done = [this, job, &slot](const Result<uint64_t>& got) {
                          compare_read(job, slot, got);
                        }});
}

void Comparer::compare_read(const JobPointer& job, Slot& slot, const Result<uint64_t>& got) {
  last_read_ = now_;
  slot.file.reset();
  slot.parts.clear();
  for (const DedupRead::Part& part : slot.read->parts) {
    if (job->same[part.candidate]) slot.parts.push_back(part);
  }
  const auto over = [this, job, &slot] {
    job->take(slot);
    slot.busy = false;
    continue_job(job);
  };
  if (got.ok() && *got >= slot.read->end - slot.read->begin) {
    return context_.executor.run([job, &slot] { job->compare(slot); }, over);
  }
  slot.bases.clear();
  slot.other_extents = slot.read->extents;
  slot.other_candidates.clear();
  for (const DedupRead::Part& part : slot.parts) slot.other_candidates.push_back(part.candidate);
  over();
}

// Closes the files. A header is checked only when a file is opened, and these files may still be
// written to: the next reader must check the header again.
void Comparer::finish(const JobPointer& job) {
  for (const DedupRead& read : job->reads) context_.segments.close(read.segment);
  std::erase(running_, job);
  start_jobs();
  if (job->abandoned) {  // the job frees the slab
    if (options_.on_abandoned) options_.on_abandoned();
    return;
  }
  std::vector<bool> there(job->slab.fragments().size(), false);
  for (size_t i = 0; i < job->candidates.size() && !job->timed_out; ++i) {
    if (job->same[i]) there[job->candidates[i].fragment] = true;
  }
  const Done on_done = std::move(job->on_done);
  on_done(std::move(job->slab), std::move(there));
}

void Comparer::abandon(const ckpt::SnapshotKey& snapshot) {
  for (auto& [run, jobs] : waiting_) {
    std::erase_if(jobs, [&](const JobPointer& job) { return job->snapshot == snapshot; });
  }
  std::erase_if(waiting_, [](const auto& run) { return run.second.empty(); });
  for (const JobPointer& job : running_) job->abandoned |= job->snapshot == snapshot;
}

void Comparer::abandon_all() {
  waiting_.clear();
  for (const JobPointer& job : running_) job->abandoned = true;
}

}  // namespace ckptd
