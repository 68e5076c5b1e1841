// Restore: a view, or any part of it, back into a session's arena, in any layout.
//
//   plan_restore   pure: view + wanted ranges + what lies in memory -> reads, coalesced, ascending
//   RestoreJob     shell: windows of reserved slabs, reads, CRC check, fallback to the next source
//                  or an older version (which the answer says)
//   locate()       the client reads what lies in segments itself: it is told where, and what it
//                  cannot read, or what does not match, is read here after all
//
// A window is a slab of the session's arena that was filled with whole fragments; the client copies
// the pieces it asked for out of it and gives it back. Every fragment is checked against its CRC
// from the journal before the restore ends. When one does not hold, or cannot be read, the next
// source is tried (memory, then segment), then the unit's older version. Then every want of that
// unit is delivered again from the older version, and a note says why; the client overwrites. So
// what was copied out counts only once the window with `last` has arrived.
#pragma once

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

// What a filled window looks like to the client.
struct WindowPiece {
  size_t want = 0;
  ckpt::UnitRange range;
  uint64_t slab_offset = 0;
  uint32_t crc32c = 0;  // of these bytes
  Source source = Source::kSegment;
};
// These wants of the unit are now served from this snapshot, or from another source of the same
// one, and why. At most one per unit and window: what a later failure makes of it replaces it.
struct RestoreNote {
  ckpt::UnitId unit = 0;
  std::set<size_t> wants;
  ckpt::SnapshotKey snapshot;
  std::string note;
};
// A window without pieces carries only notes or `last`: it has no slab, releasing it does nothing.
inline constexpr uint32_t kNoSlab = UINT32_MAX;
// A whole fragment in a segment's file, for the client to read and check.
struct LocatedFragment {
  uint64_t file_offset = 0;
  uint64_t length = 0;
  uint32_t crc32c = 0;
  // What it gets of it. Here slab_offset counts from the fragment's begin, and there is no CRC.
  std::vector<WindowPiece> pieces;
};
struct Located {
  uint64_t number = 0;  // of this restore's
  ckpt::SegmentId segment = 0;
  int file = -1;                           // a descriptor to give away; the job's
  std::vector<LocatedFragment> fragments;  // ascending, apart
};
// What became of it.
struct LocatedAnswer {
  uint64_t number = 0;
  std::vector<uint32_t> failed;  // of its fragments
  bool stop = false;             // nothing was read, no more are wanted
  std::string reason;
};
struct Window {
  uint32_t slab = kNoSlab;
  std::vector<WindowPiece> pieces;
  std::vector<RestoreNote> notes;
  bool last = false;
  std::optional<Located> located;  // then without slab and pieces
};

// One restore of one session. Loop thread. Slabs are taken from the arena's restore slabs as they
// are there; several restores of a session share them. close() waits for its reads; the destructor
// asserts that it was called and is through.
class RestoreJob {
 public:
  using Context = RestoreContext;
  // on_window: a window is filled, or the restore failed for good (then nothing follows). Runs from
  // Disk::reap(), Executor::reap(), release() or pump(), never inside start(); it may call close(),
  // it must not destroy the job. `uid`: whose memory level may be used.
  RestoreJob(Context context, ArenaId arena, uid_t uid, RestoreRequest request, RestorePlan plan,
             std::function<void(Result<Window>)> on_window);
  ~RestoreJob();
  // Before start(). What lies in segments goes out as `located`, blocks of bytes_max bytes at most
  // in one; larger fragments, and what lies in memory, come in slabs as ever.
  void locate(uint64_t bytes_max);
  void start();
  // The client copied the window out. A slab that is not out with the client is ignored.
  void release(uint32_t slab);
  // The client is through with a located window; returns the bytes that it got of it. An answer
  // about one that is not out with it is ignored; one that names a fragment that there is not means
  // all of them.
  uint64_t located_read(const LocatedAnswer& answer);
  // Another restore of this arena gave slabs back: goes on if it waited for one.
  void pump();
  // No window follows. Gives all slabs back; on_closed runs from the loop, never inside this call.
  void close(std::function<void()> on_closed);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd
