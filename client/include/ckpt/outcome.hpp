// Result of a call of client.hpp: a value, or an error with its message. Header only, C++17.
#ifndef CKPT_OUTCOME_HPP_
#define CKPT_OUTCOME_HPP_

#include <ckpt/ckpt.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace ckpt::client {

struct Error {
  ckpt_status status = CKPT_OK;
  std::string message;
  int detail = CKPT_DETAIL_NONE;  // a ckpt_detail
};

// A T or an Error. Check before value(): value() of a failed outcome is undefined.
template <typename T>
class [[nodiscard]] Outcome {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): `return value;` and `return error;` read best.
  Outcome(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Outcome(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return *std::get_if<0>(&state_); }
  const T& value() const& { return *std::get_if<0>(&state_); }
  T&& value() && { return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Outcome<void> {
 public:
  Outcome() = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  Outcome(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

}  // namespace ckpt::client

#endif  // CKPT_OUTCOME_HPP_
