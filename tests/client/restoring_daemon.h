// Restore answers for FakeDaemon: fills two slabs with windows, waits for a release, damages the
// released slab and fills it again. A test changes single windows.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "formats/base/checked.h"
#include "formats/base/crc32c.h"
#include "tests/client/fake_daemon.h"

namespace ckpt::test {

class RestoringDaemon {
 public:
  struct Window {
    uint64_t number = 0;   // from 0, within its restore
    uint64_t restore = 0;  // from 1
    fb::RestoreWindowT message;
    MutableByteView slab;
  };
  // Called before a window is sent. False: neither this window nor a later one is sent.
  using Bend = std::function<bool(FakeDaemon::Peer& peer, Window& window)>;

  // `units`: bytes of the newest version of each unit. They are stored in fragments of
  // `fragment_bytes`.
  RestoringDaemon(const std::vector<std::vector<char>>& units, uint64_t fragment_bytes,
                  Bend bend = {})
      : units_(units), fragment_bytes_(fragment_bytes), bend_(std::move(bend)) {}

  FakeDaemon::Override answers(const std::unique_ptr<FakeDaemon>& daemon) {
    return [this, &daemon](FakeDaemon::Peer& peer, const fb::MessageT& message) {
      if (const auto* open = message.body.AsOpenRestore()) {
        this->open(*daemon, peer, *open);
      } else if (const auto* release = message.body.AsReleaseWindow()) {
        if (release->restore != restore_) return true;
        const MutableByteView slab = daemon->slab(release->slab);
        std::fill(slab.begin(), slab.end(), std::byte{0xdd});
        fill(*daemon, peer, release->slab);
      } else {
        return false;
      }
      return true;
    };
  }
  uint64_t request() const { return request_; }  // number of the last OpenRestore
  // The first `windows` windows have bytes of `newer`. Then `newer` is reported damaged, and all
  // units fall back to the bytes given to the constructor.
  void fall_back(std::vector<std::vector<char>> newer, uint64_t windows) {
    newer_ = std::move(newer);
    newer_windows_ = windows;
  }

 private:
  struct Fragment {
    uint32_t unit = 0;
    uint64_t offset = 0;
    std::string_view bytes;
    std::vector<fb::RestoredPiece> pieces;  // slab_offset counts from the fragment's begin
  };

  void open(FakeDaemon& daemon, FakeDaemon::Peer& peer, const fb::OpenRestoreT& body) {
    ++restore_;
    windows_ = 0;
    stopped_ = false;
    request_ = body.request;
    fb::RestoreOpenedT opened;
    opened.request = body.request;
    opened.restore = restore_;
    for (size_t i = 0; i < body.wants.size(); ++i) {
      opened.units.push_back(std::make_unique<fb::RestoredUnitT>());
      opened.units.back()->version_lineage = 1;
      opened.units.back()->version_step = body.step;
    }
    peer.send(std::move(opened));
    wants_ = body.wants;
    queue_ = fragments(newer_windows_ > 0 ? newer_ : units_);
    for (const uint32_t slab : {5u, 2u}) fill(daemon, peer, slab);
  }

  std::deque<Fragment> fragments(const std::vector<std::vector<char>>& units) const {
    std::deque<Fragment> all;
    for (uint32_t unit = 0; unit < units.size(); ++unit) {
      for (uint64_t at = 0; at < units[unit].size(); at += fragment_bytes_) {
        const uint64_t length = std::min(fragment_bytes_, units[unit].size() - at);
        Fragment fragment{unit, at, {units[unit].data() + at, length}, {}};
        for (uint32_t want = 0; want < wants_.size(); ++want) {
          const fb::Range& range = wants_[want];
          const uint64_t begin = std::max(range.offset(), at);
          const uint64_t end =
              std::min(range.offset() + range.length(), at + fragment.bytes.size());
          if (range.unit() != unit || begin >= end) continue;
          const ByteView bytes = as_bytes(fragment.bytes.substr(begin - at, end - begin));
          fragment.pieces.emplace_back(want, unit, begin, end - begin, begin - at,
                                       base::crc32c(bytes), 1);
        }
        if (!fragment.pieces.empty()) all.push_back(std::move(fragment));
      }
    }
    return all;
  }

  // Places fragments on cache lines, or at the distance from a block that they had on disk.
  void fill(FakeDaemon& daemon, FakeDaemon::Peer& peer, uint32_t slab) {
    if (queue_.empty() || stopped_) return;
    Window window{windows_++, restore_, {}, daemon.slab(slab)};
    window.message.restore = restore_;
    window.message.slab = slab;
    if (newer_windows_ > 0 && window.number == newer_windows_) {
      newer_windows_ = 0;
      queue_ = fragments(units_);
      for (uint32_t want = 0; want < wants_.size(); ++want) {
        auto& note = window.message.notes.emplace_back(std::make_unique<fb::RestoreNoteT>());
        note->want = want;
        note->version_lineage = 1;
        note->version_step = 1100;
        note->note = "step 1200 is damaged";
      }
    }
    uint64_t used = 0;
    while (!queue_.empty()) {
      const Fragment& fragment = queue_.front();
      const uint64_t at = base::align_up(used, 64) + fragment.offset % 3 * 64 + fragment.unit % 2;
      const ByteView bytes = as_bytes(fragment.bytes);
      if (at + bytes.size() > window.slab.size()) break;
      std::copy(bytes.begin(), bytes.end(), window.slab.begin() + static_cast<ptrdiff_t>(at));
      for (const fb::RestoredPiece& piece : fragment.pieces) {
        window.message.pieces.emplace_back(piece.want(), piece.unit(), piece.offset(),
                                           piece.length(), at + piece.slab_offset(), piece.crc32c(),
                                           piece.source());
      }
      used = at + bytes.size();
      queue_.pop_front();
    }
    window.message.last = queue_.empty();
    stopped_ = bend_ && !bend_(peer, window);
    if (!stopped_) peer.send(std::move(window.message));
  }

  const std::vector<std::vector<char>>& units_;
  const uint64_t fragment_bytes_;
  const Bend bend_;
  uint64_t restore_ = 0;
  uint64_t windows_ = 0;
  uint64_t request_ = 0;
  bool stopped_ = false;
  std::vector<std::vector<char>> newer_;
  uint64_t newer_windows_ = 0;
  std::vector<fb::Range> wants_;
  std::deque<Fragment> queue_;
};

}  // namespace ckpt::test
