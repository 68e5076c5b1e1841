// Restore: a view, or any part of it, back into a session's arena, in any layout.
//
//   plan_restore   pure: view + wanted ranges + places of fragments -> reads, coalesced, ascending
//   RestoreJob     shell: windows of reserved slabs, reads, CRC check, fallback to the next source
//                  or an older version (which the answer says)
//   locate()       the client reads fragments from their files itself, by their places; ckptd
//                  reads those that the client cannot read, or whose checksums do not match
//
// A window is a slab of the session's arena that was filled with whole fragments. The client copies
// the requested pieces out of it and releases it. Every fragment is checked against its CRC from
// the journal before the restore ends. If a fragment fails the check or cannot be read, the next
// source of the list that has it is tried, then the unit's older version. Then every want of that
// unit is delivered again from the older version, with a note, and overwrites the earlier bytes. So
// copied bytes count only once the window with `last` has arrived.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ckptd/restore/context.h"
#include "ckptd/restore/plan.h"
#include "ckptd/restore/verify.h"

namespace ckptd {

// Part of a filled window, as the client sees it.
struct WindowPiece {
  size_t want = 0;
  ckpt::UnitRange range;
  uint64_t slab_offset = 0;
  uint32_t crc32c = 0;  // of these bytes
  SourceId source = {};
};
// These wants of the unit are now served from this snapshot, or from another source of the same
// one, and why. At most one per unit and window: a later failure replaces the note.
struct RestoreNote {
  ckpt::UnitId unit = 0;
  std::set<size_t> wants;
  ckpt::SnapshotKey snapshot;
  std::string note;
};
// A window without pieces carries only notes or `last`: it has no slab, releasing it does nothing.
inline constexpr uint32_t kNoSlab = UINT32_MAX;
// A whole fragment in a file, for the client to read and check.
struct LocatedFragment {
  uint64_t file_offset = 0;
  uint64_t length = 0;
  uint32_t crc32c = 0;
  // Parts for the client. slab_offset counts from the start of the fragment; there is no CRC.
  std::vector<WindowPiece> pieces;
};
struct Located {
  uint64_t number = 0;                     // unique in this restore
  uint64_t container = 0;                  // of the fragments, in the terms of their source
  int file = -1;                           // descriptor to send to the client; the job owns it
  std::vector<LocatedFragment> fragments;  // ascending, disjoint
};
// The client's result for a located window.
struct LocatedAnswer {
  uint64_t number = 0;
  std::vector<uint32_t> failed;  // indices of fragments
  bool stop = false;             // the client read nothing, and wants no more located windows
  std::string reason;
};
struct Window {
  uint32_t slab = kNoSlab;
  std::vector<WindowPiece> pieces;
  std::vector<RestoreNote> notes;
  bool last = false;
  std::optional<Located> located;  // if set, the window has no slab and no pieces
};

// One restore of one session. Loop thread. Takes restore slabs of the arena as they become free;
// several restores of a session share them. close() waits for its reads; the destructor asserts
// that the job is closed and has no reads in flight.
class RestoreJob {
 public:
  using Context = RestoreJobContext;
  // on_window: a window is filled, or the restore failed for good (then nothing follows). Runs from
  // Disk::reap(), Executor::reap(), release() or pump(), never inside start(). It may call close(),
  // but must not destroy the job. `uid` is the reader for the sources.
  RestoreJob(Context context, ArenaId arena, uid_t uid, RestoreRequest request, RestorePlan plan,
             std::function<void(Result<Window>)> on_window);
  ~RestoreJob();
  // Call this before start(). Fragments in sources that can locate them are then sent as `located`
  // windows of at most bytes_max bytes of blocks. Larger fragments, and fragments in other sources,
  // still come in slabs.
  void locate(uint64_t bytes_max);
  void start();
  // The client copied the window out. A slab that the client does not have is ignored.
  void release(uint32_t slab);
  // The client is done with a located window; returns the bytes that it read. An answer for a
  // window that the client does not have is ignored. An unknown fragment number counts as a failure
  // of all fragments.
  uint64_t located_read(const LocatedAnswer& answer);
  // Another restore of this arena released slabs: continues if this job waits for one.
  void pump();
  // Cancels reads that take longer than their source allows, counted from the first tick that sees
  // them. `now`: of a clock that never goes back.
  void tick(std::chrono::nanoseconds now);
  // No window follows. Releases all slabs, and cancels reads; on_closed runs from the loop, never
  // inside this call.
  void close(std::function<void()> on_closed);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd
