// Source: a store that fragments can be read back from, such as the memory level or the segments.
//
// A source is one of two kinds:
//   staged   the whole fragment lies in the daemon's memory, as it was staged: lease() returns it
//   stored   the stored bytes, encoded ones included, are read into memory of the caller:
//            open(), read(), cancel()
// The caller checks every fragment against its CRC32C, so a source may return wrong bytes.
// Loop thread. A source outlives everything that reads from it.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ckptd/catalog/versions.h"
#include "ckptd/io/disk.h"
#include "formats/base/result.h"
#include "formats/base/unique_fd.h"
#include "formats/segment.h"

namespace ckptd {

// Every source has one value. The wire protocol has the same (enum Source in wire.fbs).
enum class SourceId : uint8_t { kMemory = 0, kSegment = 1, kPeer = 2, kTier = 3 };
inline constexpr size_t kSourceIds = 4;

// One value for each source.
template <typename T>
class BySource {
 public:
  T& operator[](SourceId id) { return values_.at(static_cast<size_t>(id)); }
  const T& operator[](SourceId id) const { return values_.at(static_cast<size_t>(id)); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  bool operator==(const BySource&) const = default;

 private:
  std::array<T, kSourceIds> values_{};
};
using SourceBytes = BySource<uint64_t>;

// Position of bytes in a source, in terms of the source: a container, such as a file, and an offset
// in it. The planner reads a source in ascending order of addresses.
struct Address {
  uint64_t container = 0;
  uint64_t offset = 0;
  auto operator<=>(const Address&) const = default;
};
// Names where a fragment lies.
struct Place {
  SourceId source = {};
  Address address;
  auto operator<=>(const Place&) const = default;
};

// The segment number of a fragment that is on no disk.
inline constexpr ckpt::SegmentId kNoSegment = 0;

// One fragment of a unit version, as the catalog describes it, for a reader of this uid. Refers to
// values of the caller: valid only during the call.
struct FragmentName {
  uid_t uid = 0;
  const ckpt::SnapshotKey& snapshot;
  ckpt::UnitId unit = 0;
  const FragmentPlace& stored;
};

// All bytes of a fragment, as they were staged. They stay valid while `hold` is held.
struct StagedBytes {
  ckpt::ByteView bytes;
  std::shared_ptr<void> hold;
};

// Keeps a container open for reads while it is held.
using SourceLease = std::shared_ptr<const void>;

struct SourceRead {
  Address from;  // offset and length: multiples of block_bytes
  ckpt::MutableByteView into;
  std::optional<BufferId> buffer;  // `into` lies in this registered buffer
  // Number of bytes read, or the error. Fewer bytes: the container ends there. After this call the
  // source no longer touches `into`.
  std::function<void(Result<uint64_t>)> on_done;
};
// Names a read for cancel(). 0: the read ends soon by itself.
using ReadTicket = uint64_t;

// Why bytes of a source could not be used.
enum class SourceFailure : uint8_t { kWrongBytes, kFailed, kCancelled };
struct SourceFailures {
  uint64_t wrong_bytes = 0;  // checksum mismatch
  uint64_t failed = 0;       // lease, open or read failed
  uint64_t cancelled = 0;    // the read took longer than read_time_max
};

// Fixed properties of a source.
struct SourceTraits {
  SourceId id = {};
  std::string_view name;  // in notes, metrics and queries
  bool staged = false;    // kind, see above
  // The rest is only for stored sources.
  bool locates = false;      // locate() works
  uint64_t block_bytes = 1;  // alignment of reads: a power of 2, at most ckpt::kBlockBytes
  uint64_t read_bytes_max = 4u << 20;  // of one read()
  // A read that takes longer is cancelled; 0: never. Only reads with a ticket can be cancelled.
  std::chrono::nanoseconds read_time_max{0};
};

class Source {
 public:
  explicit Source(const SourceTraits& traits) : traits_(traits) {}
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  SourceId id() const { return traits_.id; }
  std::string_view name() const { return traits_.name; }
  const SourceTraits& traits() const { return traits_; }

  // Names an address in messages, like "segment 3 offset 4096".
  virtual std::string describe(const Address& address) const = 0;
  // Address of the fragment; nullopt: the source does not have it. A stored source accepts a delta
  // only if it has the base, too.
  virtual std::optional<Address> can_serve(const FragmentName& fragment) const = 0;
  // Keeps the fragment in the source, if it could be evicted and no other source has it; else null.
  virtual std::shared_ptr<void> hold(const FragmentName& fragment);

  // -- staged sources --
  // The error says why the fragment is no longer available.
  virtual Result<StagedBytes> lease(const FragmentName& fragment);

  // -- stored sources --
  // Address of a delta's base; nullopt: the fragment is no delta.
  virtual std::optional<Address> delta_base(const FragmentPlace& stored) const;
  // Runs `then` within this call or later from the loop. Must end within bounded time.
  virtual void open(const Address& address, std::function<void(Result<SourceLease>)> then);
  // `lease` is of the same container, and is held until on_done. on_done runs from the loop, once,
  // and never inside this call.
  virtual ReadTicket read(const SourceLease& lease, SourceRead read);
  // on_done of this read follows soon, never inside this call: with an error unless the read has
  // completed.
  virtual void cancel(ReadTicket read);
  // A read-only descriptor of the container, for a client that reads it itself.
  virtual Result<ckpt::base::UniqueFd> locate(const Address& address);

  // Bytes per second that a restore from this source alone can expect; 0: unknown. By default, the
  // speed of recent restores.
  virtual double expected_bandwidth() const { return bandwidth_; }
  void measured(double bytes_per_second);

  void count(SourceFailure failure);
  const SourceFailures& failures() const { return failures_; }

 private:
  const SourceTraits traits_;
  double bandwidth_ = 0;
  SourceFailures failures_;
};

}  // namespace ckptd
