#include "ckptd/same/comparer.h"

#include <algorithm>
#include <cstring>

#include "ckptd/codec/zstd_codec.h"
#include "ckptd/io/aligned_buffer.h"
#include "ckptd/limits.h"
#include "ckptd/safeguards.h"

namespace ckptd {

static_assert(limits::kComparedReadBytes % ckpt::kBlockBytes == 0);
static_assert(limits::kComparedReadBytes >= ckpt::kEncodedFragmentBytesMax + 2 * ckpt::kBlockBytes);

struct Comparer::Job {
  ckpt::SnapshotKey snapshot;
  StagedSlab slab;
  std::vector<SameCandidate> candidates;
  Done on_done;
  bool abandoned = false;

  std::vector<SameRead> reads;
  size_t next = 0;         // of them
  std::vector<bool> same;  // by candidate, as far as is known
  SegmentHandle file;      // of the read at hand
  AlignedBuffer buffer;
  ZstdDecoder decoder;
  std::vector<std::byte> decoded;

  bool wanted(const SameRead& read) const {
    return std::any_of(read.parts.begin(), read.parts.end(),
                       [this](const auto& part) { return same[part.candidate]; });
  }
  void compare(const SameRead& read, ByteView stored);
  // It cannot be read.
  void compare_nothing(const SameRead& read) {
    for (const auto& part : read.parts) same[part.candidate] = false;
  }
  bool part_is_same(const SameRead& read, const SameRead::Part& part, ByteView stored);
};

void Comparer::Job::compare(const SameRead& read, ByteView stored) {
  for (const SameRead::Part& part : read.parts) {
    if (same[part.candidate]) same[part.candidate] = part_is_same(read, part, stored);
  }
}

bool Comparer::Job::part_is_same(const SameRead& read, const SameRead::Part& part,
                                 ByteView stored) {
  const SameCandidate& candidate = candidates[part.candidate];
  const FragmentPlace& place = candidate.places[part.place];
  const ckpt::ExtentFragment& fragment = slab.fragments()[candidate.fragment];
  const uint64_t in_slab = fragment.payload_offset + (place.offset - fragment.offset) + part.from;
  ByteView there = stored.subspan(place.payload_offset + part.from - read.begin, part.bytes);
  if (place.codec != 0) {
    decoded.resize(place.length);
    if (!decoder.decode(static_cast<Codec>(place.codec), there, decoded).ok()) return false;
    there = decoded;
  }
  const ByteView here = slab.payload().subspan(in_slab, there.size());
  return left_out(Safeguard::kSameBytes) ||
         std::memcmp(here.data(), there.data(), there.size()) == 0;
}

Comparer::Comparer(const RestoreContext& context) : context_(context) {}

Comparer::~Comparer() { CKPT_ASSERT_MSG(idle(), "slabs were still being compared"); }

void Comparer::from_loop(const JobPointer& job, void (Comparer::*then)(const JobPointer&)) {
  context_.executor.run([] {}, [this, job, then] { (this->*then)(job); });
}

void Comparer::compare(const ckpt::SnapshotKey& snapshot, StagedSlab slab,
                       std::vector<SameCandidate> candidates, Done on_done) {
  auto job = std::make_shared<Job>();
  job->snapshot = snapshot;
  job->slab = std::move(slab);
  job->reads = plan_same_reads(candidates, limits::kComparedReadBytes);
  job->same.assign(candidates.size(), true);
  job->candidates = std::move(candidates);
  job->on_done = std::move(on_done);
  waiting_.push_back(std::move(job));
  start_jobs();
}

void Comparer::start_jobs() {
  while (!waiting_.empty() && running_.size() < limits::kComparedSlabsMax) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    from_loop(running_.back(), &Comparer::next_read);
  }
}

void Comparer::next_read(const JobPointer& job) {
  while (job->next < job->reads.size() && !job->wanted(job->reads[job->next])) ++job->next;
  if (job->abandoned || job->next == job->reads.size()) return finish(job);
  context_.segments.open(job->reads[job->next].segment,
                         [this, job](const Result<SegmentHandle>& file) { read(job, file); });
}

void Comparer::read(const JobPointer& job, const Result<SegmentHandle>& file) {
  const SameRead& read = job->reads[job->next];
  if (!file.ok()) {
    job->compare_nothing(read);
    ++job->next;
    return from_loop(job, &Comparer::next_read);
  }
  job->file = *file;
  const uint64_t bytes = read.end - read.begin;
  if (job->buffer.size() < bytes) job->buffer = AlignedBuffer(bytes);
  read_bytes_ += bytes;
  context_.disk.submit(
      {.op = IoOp::kRead,
       .file = **file,
       .offset = read.begin,
       .memory = job->buffer.bytes().first(bytes),
       .on_done = [this, job](const Result<uint64_t>& got) { compare_read(job, got); }});
}

void Comparer::compare_read(const JobPointer& job, const Result<uint64_t>& got) {
  job->file.reset();
  const SameRead& read = job->reads[job->next++];
  const uint64_t bytes = read.end - read.begin;
  if (!got.ok() || *got < bytes) {
    job->compare_nothing(read);
    return next_read(job);
  }
  context_.executor.run(
      [job, &read, bytes] { job->compare(read, ByteView(job->buffer.bytes()).first(bytes)); },
      [this, job] { next_read(job); });
}

void Comparer::finish(const JobPointer& job) {
  std::erase(running_, job);
  start_jobs();
  if (job->abandoned) return;  // the slab goes with the job
  std::vector<bool> there(job->slab.fragments().size(), false);
  for (size_t i = 0; i < job->candidates.size(); ++i) {
    if (job->same[i]) there[job->candidates[i].fragment] = true;
  }
  const Done on_done = std::move(job->on_done);
  on_done(std::move(job->slab), std::move(there));
}

void Comparer::abandon(const ckpt::SnapshotKey& snapshot) {
  std::erase_if(waiting_, [&](const JobPointer& job) { return job->snapshot == snapshot; });
  for (const JobPointer& job : running_) job->abandoned |= job->snapshot == snapshot;
}

void Comparer::abandon_all() {
  waiting_.clear();
  for (const JobPointer& job : running_) job->abandoned = true;
}

}  // namespace ckptd
