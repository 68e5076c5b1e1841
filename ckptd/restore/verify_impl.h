// Private to this folder: the parts of VerifyJob.
#pragma once

#include <deque>
#include <list>
#include <set>

#include "ckptd/io/aligned_buffer.h"
#include "ckptd/restore/extent_check.h"
#include "ckptd/restore/verify.h"

namespace ckptd {

// A commit to check. Its record is read when its turn comes.
struct VerifyTargetCommit {
  ckpt::RunId run = 0;
  ViewPoint point;
};

// The commits that are chosen, oldest first within a run: all of a run of which something is left,
// or those that the view at the point is made of.
std::vector<VerifyTargetCommit> verify_targets(const Catalog& catalog,
                                               const std::optional<ckpt::RunId>& run,
                                               const std::optional<ViewPoint>& point);

struct VerifyJob::Impl {
  // A stretch of an extent on its way from the disk, in the order of the extent.
  struct Piece {
    AlignedBuffer buffer;
    uint64_t bytes = 0;
    bool here = false;
    Result<uint64_t> got = 0;
  };

  Impl(RestoreContext with, const std::optional<ckpt::RunId>& of_run,
       const std::optional<ViewPoint>& at_point, std::function<void(VerifyReport)> callback)
      : context(with), run(of_run), point(at_point), on_done(std::move(callback)) {}

  void next_commit();
  void next_extent();
  void read_extent(Result<SegmentHandle> handle);
  void read_more();
  void feed_more();
  void piece_fed();
  void extent_done();
  void commit_done();
  void report(const std::string& unit, const std::string& reason);  // once for each unit
  void add_error(const std::string& unit, const std::string& reason);
  void finish();
  void finish_close();
  bool busy() const { return waiting > 0; }
  // Counts a callback that has not come back, and runs it from the loop.
  void on_executor(std::function<void()> work, void (Impl::*then)());

  RestoreContext context;
  const std::optional<ckpt::RunId> run;
  const std::optional<ViewPoint> point;
  std::function<void(VerifyReport)> on_done;
  VerifyReport result;

  std::vector<VerifyTargetCommit> targets;
  size_t target = 0;  // the next one
  // ---- the commit at hand ----
  ckpt::fb::CommittedT record;
  CommitInfo info;
  std::string run_name;
  std::shared_ptr<const std::vector<ckpt::UnitSpec>> units;
  std::vector<ckpt::ExtentHeader> headers;
  std::set<std::string> reported;              // units
  std::set<ckpt::SegmentId> damaged_segments;  // whose headers were reported
  size_t extent = 0;                           // the next one
  // ---- the extent at hand ----
  std::unique_ptr<ExtentCheck> check;
  SegmentHandle file;
  std::list<Piece> pieces;  // read, not yet fed; stable addresses
  std::vector<AlignedBuffer> spare;
  uint64_t submitted = 0;  // bytes of the extent
  bool feeding = false;

  size_t waiting = 0;  // callbacks that have not come back
  bool done = false;
  bool closed = false;
  std::function<void()> on_closed;
};

}  // namespace ckptd
