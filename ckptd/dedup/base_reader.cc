#include "ckptd/dedup/base_reader.h"

#include <algorithm>
#include <set>

#include "ckptd/codec/zstd_codec.h"
#include "ckptd/io/aligned_buffer.h"
#include "ckptd/limits.h"
#include "ckptd/restore/place_bytes.h"

namespace ckptd {

BaseReader::~BaseReader() { CKPT_ASSERT_MSG(reads_ == 0, "bases were still being read"); }

class BaseReader::Slab : public BaseSource, public std::enable_shared_from_this<Slab> {
 public:
  Slab(BaseReader& reader, std::vector<Base> bases, std::vector<DedupExtent> extents);
  void read(const std::vector<ckpt::UnitRange>& ranges,
            std::function<void(BasePieces)> on_done) override;

 private:
  struct Read {
    DedupRead request;
    SegmentHandle file;
    AlignedBuffer buffer;
    // Results.
    BasePieces pieces;
    std::vector<size_t> in_extent;  // by piece: its extent
    std::vector<size_t> good_extents;
  };
  // Pieces that are requested together.
  struct Batch {
    std::vector<DedupCandidate> candidates;
    std::vector<ckpt::UnitRange> ranges;  // by candidate
    std::vector<DedupExtent> extents;     // headers to check
    std::vector<size_t> numbers;          // of these extents, among all
    std::vector<std::shared_ptr<Read>> reads;
    size_t pending = 0;
    Time began{};
    std::function<void(BasePieces)> on_done;
  };
  using BatchPointer = std::shared_ptr<Batch>;
  using ReadPointer = std::shared_ptr<Read>;
  BatchPointer batch_of(const std::vector<ckpt::UnitRange>& ranges) const;
  void opened(const BatchPointer& batch, const ReadPointer& read,
              const Result<SegmentHandle>& file);
  void decode(const Batch& batch, Read& read) const;
  void read_over(const BatchPointer& batch);
  void finish(const BatchPointer& batch);
  size_t extent_of(const FragmentPlace& place) const;

  BaseReader& reader_;
  std::map<std::pair<ckpt::UnitId, uint64_t>, FragmentPlace> bases_;
  const std::vector<DedupExtent> extents_;
  std::set<size_t> good_;  // extents with a valid header
  std::set<size_t> bad_;   // extents with an invalid header
  Time waited_{};
};

BaseReader::Slab::Slab(BaseReader& reader, std::vector<Base> bases,
                       std::vector<DedupExtent> extents)
    : reader_(reader), extents_(std::move(extents)) {
  for (Base& base : bases) {
    const std::pair key{base.unit, base.place.offset};
    bases_.emplace(key, std::move(base.place));
  }
}

std::shared_ptr<BaseSource> BaseReader::of_slab(std::vector<Base> bases,
                                                std::vector<DedupExtent> extents) {
  return std::make_shared<Slab>(*this, std::move(bases), std::move(extents));
}

size_t BaseReader::Slab::extent_of(const FragmentPlace& place) const {
  const auto found = std::ranges::find_if(
      extents_, [&](const DedupExtent& extent) { return extent.holds(place); });
  CKPT_ASSERT(found != extents_.end());
  return static_cast<size_t>(found - extents_.begin());
}

// Each header is checked once per slab.
BaseReader::Slab::BatchPointer BaseReader::Slab::batch_of(
    const std::vector<ckpt::UnitRange>& ranges) const {
  auto batch = std::make_shared<Batch>();
  if (waited_ >= limits::kCompareWaitMax) return batch;
  std::set<size_t> unknown;
  for (const ckpt::UnitRange& range : ranges) {
    const auto found = bases_.find({range.unit, range.offset});
    if (found == bases_.end() || found->second.length != range.length) continue;
    const size_t extent = extent_of(found->second);
    if (bad_.contains(extent)) continue;
    batch->candidates.push_back({batch->candidates.size(), {found->second}});
    batch->ranges.push_back(range);
    if (!good_.contains(extent)) unknown.insert(extent);
  }
  for (const size_t extent : unknown) {
    batch->extents.push_back(extents_[extent]);
    batch->numbers.push_back(extent);
  }
  const DedupPlan plan = plan_dedup(batch->candidates, batch->extents,
                                    {.read_bytes_max = limits::kComparedReadBytes,
                                     .gap_bytes_max = limits::kComparedGapBytes,
                                     .compared_bytes_min = reader_.bytes_min_});
  for (const DedupRead& read : plan.reads) {
    batch->reads.push_back(std::make_shared<Read>());
    batch->reads.back()->request = read;
  }
  return batch;
}

void BaseReader::Slab::read(const std::vector<ckpt::UnitRange>& ranges,
                            std::function<void(BasePieces)> on_done) {
  const BatchPointer batch = batch_of(ranges);
  batch->on_done = std::move(on_done);
  batch->began = reader_.now_;
  ++reader_.reads_;
  // One extra count, so that a read that fails at once does not finish the batch early.
  batch->pending = 1 + batch->reads.size();
  for (const ReadPointer& read : batch->reads) {
    reader_.context_.segments.open(read->request.segment, [self = shared_from_this(), batch, read](
                                                              const Result<SegmentHandle>& file) {
      self->opened(batch, read, file);
    });
  }
  // Reported from the loop, like every result.
  reader_.context_.executor.run([] {},
                                [self = shared_from_this(), this, batch] { read_over(batch); });
}

void BaseReader::Slab::opened(const BatchPointer& batch, const ReadPointer& read,
                              const Result<SegmentHandle>& file) {
  const uint64_t bytes = read->request.end - read->request.begin;
  if (!file.ok()) return read_over(batch);
  read->file = *file;
  read->buffer = AlignedBuffer(bytes);
  reader_.read_bytes_ += bytes;
  reader_.context_.disk.submit({.op = IoOp::kRead,
                                .file = **file,
                                .offset = read->request.begin,
                                .memory = read->buffer.bytes().first(bytes),
                                .on_done = [self = shared_from_this(), this, batch, read,
                                            bytes](const Result<uint64_t>& got) {
                                  read->file.reset();
                                  if (!got.ok() || *got < bytes) return read_over(batch);
                                  reader_.context_.executor.run(
                                      [self, this, batch, read] { decode(*batch, *read); },
                                      [self, this, batch] { read_over(batch); });
                                }});
}

// On the executor: touches only the read.
void BaseReader::Slab::decode(const Batch& batch, Read& read) const {
  const ByteView all = read.buffer.bytes();
  for (const size_t number : read.request.extents) {
    const DedupExtent& extent = batch.extents[number];
    const ByteView header =
        all.subspan(extent.expected.offset - read.request.begin, extent.header_bytes);
    const bool holds =
        check_extent_header(header, extent.expected, extent.header_crc32c, ExtentPart::kRest).ok();
    if (holds) read.good_extents.push_back(batch.numbers[number]);
  }
  ZstdDecoder decoder;
  for (const DedupRead::Part& part : read.request.parts) {
    const FragmentPlace& place = batch.candidates[part.candidate].places.front();
    const ByteView stored =
        all.subspan(place.payload_offset - read.request.begin, place.stored_bytes());
    BasePiece piece{.range = batch.ranges[part.candidate],
                    .stored_bytes = place.stored_bytes(),
                    .crc32c = place.crc32c,
                    .bytes = {}};
    if (!decode_place(decoder, place, stored, {}, piece.bytes).ok()) continue;
    read.pieces.push_back(std::move(piece));
    read.in_extent.push_back(extent_of(place));
  }
  read.buffer = AlignedBuffer();
}

void BaseReader::Slab::read_over(const BatchPointer& batch) {
  if (--batch->pending == 0) finish(batch);
}

// A header that could not be read counts as invalid. Files are closed for the same reason as after
// a comparison (comparer.cc).
void BaseReader::Slab::finish(const BatchPointer& batch) {
  for (const ReadPointer& read : batch->reads) {
    reader_.context_.segments.close(read->request.segment);
    good_.insert(read->good_extents.begin(), read->good_extents.end());
    for (const size_t number : read->request.extents) bad_.insert(batch->numbers[number]);
  }
  std::erase_if(bad_, [this](size_t extent) { return good_.contains(extent); });
  BasePieces pieces;
  for (const ReadPointer& read : batch->reads) {
    for (size_t i = 0; i < read->pieces.size(); ++i) {
      if (good_.contains(read->in_extent[i])) pieces.push_back(std::move(read->pieces[i]));
    }
  }
  waited_ += reader_.now_ - batch->began;
  --reader_.reads_;
  const auto on_done = std::move(batch->on_done);
  on_done(std::move(pieces));
}

}  // namespace ckptd
