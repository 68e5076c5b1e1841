#include "tests/ckptd/sources/parcel_source.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "formats/base/assert.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

// Every fragment that begins at a multiple of this offset gets a wrong byte from a liar.
constexpr uint64_t kLieStride = 1000;

}  // namespace

ParcelSource::ParcelSource(Executor& executor, Content content)
    : Source({.id = SourceId::kPeer,
              .name = "parcel",
              .read_bytes_max = 20'000,
              .read_time_max = std::chrono::seconds(10)}),
      executor_(executor),
      content_(std::move(content)) {}

ParcelSource::~ParcelSource() { CKPT_ASSERT(silent_.empty()); }

std::string ParcelSource::describe(const Address& address) const {
  return fmt::format("parcel {} byte {}", address.container, address.offset);
}

std::optional<Address> ParcelSource::can_serve(const FragmentName& fragment) const {
  if (fragment.stored.codec != 0) return std::nullopt;
  const Version version{fragment.unit, {fragment.snapshot.lineage, fragment.snapshot.step}};
  auto found = std::find(versions_.begin(), versions_.end(), version);
  if (found == versions_.end()) found = versions_.insert(found, version);
  return Address{static_cast<uint64_t>(found - versions_.begin()), fragment.stored.offset};
}

void ParcelSource::open(const Address& address, std::function<void(Result<SourceLease>)> then) {
  const Version& version = versions_.at(address.container);
  const SourceLease lease =
      std::make_shared<const std::vector<std::byte>>(content_(version.unit, version.point));
  executor_.run([] {}, [lease, then = std::move(then)] { then(lease); });
}

// Copies the requested range; returns its length.
uint64_t ParcelSource::answer(const std::vector<std::byte>& all, const SourceRead& read) const {
  const uint64_t bytes = std::min<uint64_t>(read.into.size(), all.size() - read.from.offset);
  std::copy_n(all.begin() + static_cast<ptrdiff_t>(read.from.offset), bytes, read.into.begin());
  for (uint64_t at = 0; mode == Mode::kLies && at < bytes; at += kLieStride) {
    read.into[at] ^= std::byte{1};
  }
  return bytes;
}

ReadTicket ParcelSource::read(const SourceLease& lease, SourceRead read) {
  reads += 1;
  const ReadTicket ticket = ++last_;
  if (mode == Mode::kSilent) {
    silent_.emplace(ticket, std::move(read));
    return ticket;
  }
  const auto* all = static_cast<const std::vector<std::byte>*>(lease.get());
  executor_.run([] {},
                [this, all, read = std::move(read)] {
                  if (mode == Mode::kFails)
                    return read.on_done(make_error(ErrorCode::kIo, "it fell off"));
                  if (mode == Mode::kRefuses)
                    return read.on_done(make_error(ErrorCode::kUnavailable, "shut"));
                  read.on_done(answer(*all, read));
                });
  return ticket;
}

void ParcelSource::cancel(ReadTicket read) {
  const auto found = silent_.find(read);
  if (found == silent_.end()) return;
  cancels += 1;
  executor_.run([] {},
                [done = std::move(found->second.on_done)] {
                  done(make_error(ErrorCode::kDeadlineExceeded, "no answer"));
                });
  silent_.erase(found);
}

}  // namespace ckptd
