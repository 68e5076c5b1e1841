// From the client's outcomes to the trainer's results: the same codes, sentences and details.
#pragma once

#include <ckpt/client.hpp>

#include "formats/base/result.h"

namespace moetrain {

inline ckpt::Error to_error(const ckpt::client::Error& error) {
  static_assert(CKPT_E_FAILED_PRECONDITION ==
                static_cast<int>(ckpt::ErrorCode::kFailedPrecondition));
  static_assert(CKPT_DETAIL_JOURNAL_FULL == static_cast<int>(ckpt::ErrorDetail::kJournalFull));
  static_assert(CKPT_DETAIL_RUN_IN_USE == static_cast<int>(ckpt::ErrorDetail::kRunInUse));
  static_assert(CKPT_DETAIL_NO_COMMIT == static_cast<int>(ckpt::ErrorDetail::kNoCommit));
  return {static_cast<ckpt::ErrorCode>(error.status), error.message,
          static_cast<ckpt::ErrorDetail>(error.detail)};
}

inline ckpt::Status to_status(const ckpt::client::Outcome<void>& outcome) {
  if (outcome.ok()) return {};
  return to_error(outcome.error());
}

template <typename T>
ckpt::Result<T> to_result(ckpt::client::Outcome<T> outcome) {
  if (!outcome.ok()) return to_error(outcome.error());
  return std::move(outcome).value();
}

}  // namespace moetrain
