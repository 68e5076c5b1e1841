// Restore: a view, or any part of it, back into a session's arena, in any layout.
//
//   plan_restore   pure: view + wanted ranges + what lies in memory -> reads, coalesced, ascending
//   RestoreJob     shell: windows of reserved slabs, reads, CRC check, fallback to the next source
//                  or an older version (which the answer says)
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/io/disk.h"
#include "ckptd/io/executor.h"
#include "ckptd/staging/staging.h"
#include "formats/plan.h"

namespace ckptd {

enum class Source : uint8_t { kMemory = 0, kSegment = 1, kPeer = 2, kTier = 3 };

// One whole fragment to bring into a window, and what of it was asked for. A fragment is always
// read whole, because its CRC covers it whole.
struct PlannedRead {
  size_t want = 0;       // index of the wanted range
  ckpt::UnitRange part;  // what the client gets of it
  Source source = Source::kSegment;
  ckpt::SnapshotKey snapshot;
  FragmentPlace place;
};

struct RestoreRequest {
  ckpt::RunId run = 0;
  ViewPoint point;
  std::vector<ckpt::UnitRange> wants;
  bool exact = false;
};

// What the planner may ask. Pure: the answers are all it knows.
struct RestoreOracle {
  // As Catalog::newest_version.
  std::function<std::optional<UnitVersion>(ckpt::UnitId, const std::optional<ckpt::SnapshotKey>&)>
      newest_version;
  std::function<bool(const ckpt::SnapshotKey&, ckpt::UnitId, const FragmentPlace&)> in_memory;
};

struct WantedVersion {
  ckpt::SnapshotKey snapshot;
  std::string note;  // why it is not the view's own version; empty if it is
};
struct RestorePlan {
  std::vector<WantedVersion> versions;  // one per want
  std::vector<PlannedRead> reads;       // memory first, then by segment and offset
  uint64_t bytes_memory = 0;
  uint64_t bytes_segment = 0;
};
// kNotFound if a wanted unit has no version in the view; names run, step and unit.
Result<RestorePlan> plan_restore(const RestoreRequest& request, const RestoreOracle& oracle);

// Opens segment files for reading, checks their headers once, keeps them open.
class SegmentReader {
 public:
  SegmentReader(Disk& disk, const ckpt::base::Hash128& store);
  ~SegmentReader();
  Result<FileId> file(ckpt::SegmentId segment);
  // Reads and checks one extent header (blocking): store, segment, offset, snapshot, CRC.
  Result<ckpt::ExtentHeader> read_header(ckpt::SegmentId segment, uint64_t offset,
                                         uint32_t header_bytes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What a filled window looks like to the client.
struct WindowPiece {
  size_t want = 0;
  ckpt::UnitRange range;
  uint64_t slab_offset = 0;
  uint32_t crc32c = 0;  // of these bytes
  Source source = Source::kSegment;
};
struct RestoreNote {
  size_t want = 0;
  ckpt::SnapshotKey snapshot;
  std::string note;
};
struct Window {
  uint32_t slab = 0;
  std::vector<WindowPiece> pieces;
  std::vector<RestoreNote> notes;
  bool last = false;
};

// One restore of one session. Loop thread. close() waits for its reads; the destructor asserts.
class RestoreJob {
 public:
  struct Context {
    Disk& disk;
    Executor& executor;
    Staging& staging;
    SegmentReader& segments;
    const Catalog& catalog;
  };
  // on_window: a window is filled, or the restore failed for good (then nothing follows).
  RestoreJob(Context context, ArenaId arena, uid_t uid, RestoreRequest request, RestorePlan plan,
             std::function<void(Result<Window>)> on_window);
  ~RestoreJob();
  void start();
  void release(uint32_t slab);  // the client copied the window out
  void close(std::function<void()> on_closed);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// verify: reads every live extent of the chosen commits (header, payload, padding) and checks it
// against journal and catalog. Runs in pieces on the loop; `on_done` gets the report.
struct VerifyError {
  std::string run;
  ckpt::LineageId lineage = 0;
  ckpt::Step step = 0;
  std::string unit;
  std::string reason;
};
struct VerifyReport {
  uint64_t checked_bytes = 0;
  std::vector<VerifyError> errors;
};
void verify(RestoreJob::Context context, const std::optional<ckpt::RunId>& run,
            const std::optional<ViewPoint>& commit, std::function<void(VerifyReport)> on_done);

}  // namespace ckptd
