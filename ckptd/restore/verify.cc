// VerifyJob: commit by commit, extent by extent, a few pieces ahead of the checksums.
#include "ckptd/restore/verify.h"

#include <algorithm>

#include "ckptd/limits.h"
#include "ckptd/restore/verify_impl.h"

namespace ckptd {
namespace {

// O_DIRECT reads of whole blocks: headers and padded payloads are.
static_assert(limits::kVerifyPieceBytes % ckpt::kBlockBytes == 0);

}  // namespace

VerifyJob::VerifyJob(RestoreContext context, const std::optional<ckpt::RunId>& run,
                     const std::optional<ViewPoint>& point,
                     std::function<void(VerifyReport)> on_done)
    : impl_(std::make_unique<Impl>(context, run, point, std::move(on_done))) {}

VerifyJob::~VerifyJob() {
  CKPT_ASSERT_MSG((impl_->done || impl_->closed) && !impl_->busy(), "a verify was not closed");
}

void VerifyJob::start() {
  impl_->targets = verify_targets(impl_->context.catalog, impl_->run, impl_->point);
  impl_->on_executor([] {}, &Impl::next_commit);
}

void VerifyJob::close(std::function<void()> on_closed) {
  CKPT_ASSERT_MSG(!impl_->closed, "a verify is closed twice");
  impl_->closed = true;
  impl_->on_closed = std::move(on_closed);
  impl_->on_executor([] {}, nullptr);
}

void VerifyJob::Impl::on_executor(std::function<void()> work, void (Impl::*then)()) {
  waiting += 1;
  context.executor.run(std::move(work), [this, then] {
    waiting -= 1;
    if (closed) {
      finish_close();
    } else if (then != nullptr) {
      (this->*then)();
    }
  });
}

void VerifyJob::Impl::finish_close() {
  if (busy() || !on_closed) return;
  const auto callback = std::move(on_closed);
  on_closed = nullptr;
  pieces.clear();
  file.reset();
  callback();  // may destroy this job
}

// ---- commits -----------------------------------------------------------------------------------

void VerifyJob::Impl::next_commit() {
  while (target < targets.size()) {
    const VerifyTargetCommit& next = targets[target++];
    auto found = context.catalog.record(next.run, next.point.lineage, next.point.step);
    const auto entry = context.catalog.commit(next.run, next.point.lineage, next.point.step);
    const auto of_run = context.catalog.run(next.run);
    const auto specs = context.catalog.units(next.run);
    if (!found || !entry || !of_run.ok() || !specs.ok()) continue;  // deleted in the meantime
    record = std::move(*found);
    info = *entry;
    run_name = of_run->name;
    units = *specs;
    headers = expected_headers(context.segments.store(), record);
    reported.clear();
    damaged_segments.clear();
    extent = 0;
    next_extent();
    return;
  }
  finish();
}

void VerifyJob::Impl::commit_done() {
  // What recovery saw counts, even should the disk give the right bytes today.
  if (info.damaged && reported.empty()) {
    const bool known = !info.units.empty() && info.units.front() < units->size();
    report(known ? (*units)[info.units.front()].name : "", info.reason);
  }
  result.commits += 1;
  on_executor([] {}, &Impl::next_commit);
}

void VerifyJob::Impl::report(const std::string& unit, const std::string& reason) {
  if (reported.insert(unit).second) add_error(unit, reason);
}

void VerifyJob::Impl::add_error(const std::string& unit, const std::string& reason) {
  if (result.errors.size() >= limits::kVerifyErrorsMax) {
    result.errors_left_out += 1;
    return;
  }
  result.errors.push_back({run_name, record.lineage, record.step, unit, reason});
}

void VerifyJob::Impl::finish() {
  done = true;
  const auto callback = std::move(on_done);
  callback(std::move(result));  // may destroy this job
}

// ---- one extent --------------------------------------------------------------------------------

void VerifyJob::Impl::next_extent() {
  if (extent == headers.size()) {
    commit_done();
    return;
  }
  const ckpt::fb::ExtentT& place = *record.extents[extent];
  check = std::make_unique<ExtentCheck>(headers[extent], place.header_bytes, place.header_crc32c,
                                        info.deleted ? ExtentPart::kRest : ExtentPart::kWhole);
  extent += 1;
  submitted = 0;
  waiting += 1;
  context.segments.open(place.segment, [this](Result<SegmentHandle> handle) {
    waiting -= 1;
    if (closed) {
      finish_close();
    } else {
      read_extent(std::move(handle));
    }
  });
}

void VerifyJob::Impl::read_extent(Result<SegmentHandle> handle) {
  if (!handle.ok()) {
    // Nothing of it can be read: every unit in it is named.
    check->skip(check->bytes(), handle.error().message);
    extent_done();
    return;
  }
  file = *handle;
  const ckpt::SegmentId segment = record.extents[extent - 1]->segment;
  const std::string damage = context.segments.header_damage(segment);
  // Once for each commit: it is none of its bytes, and yet what everything in the file lies behind.
  if (!damage.empty() && damaged_segments.insert(segment).second) {
    const auto& fragments = headers[extent - 1].fragments;
    const bool known = !fragments.empty() && fragments.front().unit < units->size();
    add_error(known ? (*units)[fragments.front().unit].name : "",
              fmt::format("segment {}: the header of the file is damaged: {}", segment, damage));
  }
  read_more();
}

void VerifyJob::Impl::read_more() {
  const uint64_t begin = record.extents[extent - 1]->offset;
  while (submitted < check->bytes() && pieces.size() < limits::kVerifyPiecesInFlightMax) {
    Piece& piece = pieces.emplace_back();
    if (spare.empty()) {
      piece.buffer = AlignedBuffer(limits::kVerifyPieceBytes);
    } else {
      piece.buffer = std::move(spare.back());
      spare.pop_back();
    }
    piece.bytes = std::min<uint64_t>(limits::kVerifyPieceBytes, check->bytes() - submitted);
    waiting += 1;
    context.disk.submit({.op = IoOp::kRead,
                         .file = *file,
                         .offset = begin + submitted,
                         .memory = piece.buffer.bytes().first(piece.bytes),
                         .on_done = [this, &piece](Result<uint64_t> got) {
                           waiting -= 1;
                           piece.here = true;
                           piece.got = std::move(got);
                           closed ? finish_close() : feed_more();
                         }});
    submitted += piece.bytes;
  }
}

// One piece at a time, in order, on the executor.
void VerifyJob::Impl::feed_more() {
  if (feeding || pieces.empty() || !pieces.front().here) return;
  feeding = true;
  Piece& piece = pieces.front();
  on_executor(
      [this, &piece] {
        const uint64_t got = piece.got.ok() ? std::min(*piece.got, piece.bytes) : 0;
        check->feed(piece.buffer.bytes().first(got));
        if (got < piece.bytes) {
          check->skip(piece.bytes - got,
                      piece.got.ok() ? "the file ends here" : piece.got.error().message);
        }
      },
      &Impl::piece_fed);
}

void VerifyJob::Impl::piece_fed() {
  feeding = false;
  result.checked_bytes += pieces.front().bytes;
  spare.push_back(std::move(pieces.front().buffer));
  pieces.pop_front();
  if (pieces.empty() && submitted == check->bytes()) {
    extent_done();
    return;
  }
  read_more();
  feed_more();
}

void VerifyJob::Impl::extent_done() {
  file.reset();
  for (const ExtentCheck::Damage& damage : check->finish()) {
    const bool known = damage.unit && *damage.unit < units->size();
    report(known ? (*units)[*damage.unit].name : "", damage.reason);
  }
  // From the loop, so that a commit of many unreadable extents is no deep recursion.
  on_executor([] {}, &Impl::next_extent);
}

}  // namespace ckptd
