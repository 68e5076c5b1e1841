// Result<T>: a value or an Error. Every expected failure in this project is returned this way.
//
// An Error's message is one sentence that names the failed object, for example
//   run tiny step 1200 unit layers.3.experts.17.weights: no fragment covers bytes [4096, 8192)
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "formats/base/assert.h"

namespace ckpt {

// Kinds of failure. The numbers are part of the wire protocol and of the C ABI
// (CKPT_E_* in ckpt.h): never renumber.
enum class ErrorCode : int {
  kInvalidArgument = 1,      // the request makes no sense
  kNotFound = 2,             // no such run, step, unit, file
  kAlreadyExists = 3,        // the object exists and may not be replaced
  kCorrupt = 4,              // bytes do not match their checksum or their format
  kVersionMismatch = 5,      // another version of a format or protocol
  kPermissionDenied = 6,     // this uid lacks the right
  kResourceExhausted = 7,    // out of slabs, memory, disk space; a bound in limits.h was reached
  kUnavailable = 8,          // the peer is gone for now; try again
  kDeadlineExceeded = 9,     // a bounded wait timed out
  kAborted = 10,             // aborted for another reason: an epoch ended, a peer died
  kIo = 11,                  // the operating system reported an error
  kFailedPrecondition = 12,  // valid request, wrong state
};

// "invalid argument", "not found", ...
std::string_view error_code_name(ErrorCode code);

// The documented exit code of a program that stops because of this error:
// 2 bad usage, 3 not found, 4 integrity error, 1 anything else.
int exit_code_for(ErrorCode code);

// The exact cause, where a caller acts on it: a message is only for people. The numbers are part of
// the wire protocol and of the C ABI (CKPT_DETAIL_* in ckpt.h): never renumber.
enum class ErrorDetail : int {
  kNone = 0,           // no caller acts on the cause, or an older ckptd does not send it
  kRunHasCommits = 1,  // the run was to start from nothing
  kNoArenaRoom = 2,    // a smaller arena than the requested one could be given
  kDiskFull = 3,       // no space for a snapshot's bytes
  kJournalFull = 4,    // no space for records of the journal
  kUnitsDiffer = 5,    // the run exists with other units than those to register
  kRunInUse = 6,       // the same, without a commit: replaced only once nothing uses it
  kNoSuchRun = 7,      // a query names a run that does not exist, or that the user may not read
  kNoCommit = 8,       // a query asks for the latest commit of a run that has none
};

struct [[nodiscard]] Error {
  ErrorCode code;
  std::string message;
  ErrorDetail detail = ErrorDetail::kNone;
};

// The error with another message.
inline Error reworded(const Error& error, std::string message) {
  return Error{error.code, std::move(message), error.detail};
}
inline Error with_detail(Error error, ErrorDetail detail) {
  error.detail = detail;
  return error;
}

// make_error(ErrorCode::kNotFound, "run {}: no such run", name)
template <typename... Args>
Error make_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): `return value;` and `return error;` read best.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // The value; asserts that there is one.
  T& value() & {
    CKPT_ASSERT_MSG(ok(), message_or_empty());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    CKPT_ASSERT_MSG(ok(), message_or_empty());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    CKPT_ASSERT_MSG(ok(), message_or_empty());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // The error; asserts that there is one.
  const Error& error() const& {
    CKPT_ASSERT(!ok());
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    CKPT_ASSERT(!ok());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::string_view message_or_empty() const {
    return ok() ? std::string_view() : std::string_view(std::get_if<1>(&state_)->message);
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& {
    CKPT_ASSERT(!ok());
    return *error_;
  }
  Error&& error() && {
    CKPT_ASSERT(!ok());
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;
inline Status ok_status() { return {}; }

}  // namespace ckpt

#define CKPT_CONCAT_INNER(a, b) a##b
#define CKPT_CONCAT(a, b) CKPT_CONCAT_INNER(a, b)

// Evaluates `expression` (a Result); returns its error from this function if it failed.
#define CKPT_TRY(expression)                                              \
  do {                                                                    \
    auto ckpt_try_result = (expression);                                  \
    if (!ckpt_try_result.ok()) return std::move(ckpt_try_result).error(); \
  } while (false)

// CKPT_ASSIGN(auto header, decode_header(bytes));
// NOLINTBEGIN(bugprone-macro-parentheses): the arguments are names and declarations.
#define CKPT_ASSIGN(declaration, expression) \
  CKPT_ASSIGN_INNER(CKPT_CONCAT(ckpt_assign_, __LINE__), declaration, expression)
#define CKPT_ASSIGN_INNER(result, declaration, expression) \
  auto result = (expression);                              \
  if (!result.ok()) return std::move(result).error();      \
  declaration = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)
