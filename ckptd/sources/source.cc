#include "ckptd/sources/source.h"

#include <utility>

#include "formats/base/assert.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

std::shared_ptr<void> Source::hold(const FragmentName&) { return nullptr; }

Result<StagedBytes> Source::lease(const FragmentName&) {
  return make_error(ErrorCode::kFailedPrecondition, "{}: no staged source", name());
}

std::optional<Address> Source::delta_base(const FragmentPlace&) const { return std::nullopt; }

void Source::open(const Address&, std::function<void(Result<SourceLease>)> then) {
  const ckpt::Error error =
      make_error(ErrorCode::kFailedPrecondition, "{}: no stored source", name());
  std::exchange(then, {})(error);
}

// open() has given no lease to read with.
ReadTicket Source::read(const SourceLease&, SourceRead read) {
  CKPT_ASSERT_MSG(!std::exchange(read.on_done, {}), "a read without open()");
  return 0;
}

void Source::cancel(ReadTicket) {}

Result<ckpt::base::UniqueFd> Source::locate(const Address&) {
  return make_error(ErrorCode::kFailedPrecondition, "{}: clients cannot read it", name());
}

void Source::measured(double bytes_per_second) {
  bandwidth_ = bandwidth_ == 0 ? bytes_per_second : (bandwidth_ + bytes_per_second) / 2;
}

void Source::count(SourceFailure failure) {
  switch (failure) {
    case SourceFailure::kWrongBytes:
      failures_.wrong_bytes += 1;
      break;
    case SourceFailure::kFailed:
      failures_.failed += 1;
      break;
    case SourceFailure::kCancelled:
      failures_.cancelled += 1;
      break;
  }
}

}  // namespace ckptd
