#include "trainer/report/json_fields.h"

#include <utility>

namespace moetrain::report {
namespace {

const nlohmann::json& empty_object() {
  static const nlohmann::json empty = nlohmann::json::object();
  return empty;
}

const nlohmann::json& empty_array() {
  static const nlohmann::json empty = nlohmann::json::array();
  return empty;
}

}  // namespace

Fields::Fields(const nlohmann::json& object, std::string origin, std::string path)
    : object_(&object), origin_(std::move(origin)), path_(std::move(path)) {
  if (object.is_object()) return;
  object_ = &empty_object();
  error_ = ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "{}: {} is not an object", origin_,
                            path_.empty() ? "the document" : path_);
}

std::string Fields::path_of(const char* name) const {
  return path_.empty() ? name : fmt::format("{}.{}", path_, name);
}

void Fields::fail(const char* name, const std::string& what) {
  if (error_) return;
  error_ = ckpt::make_error(ckpt::ErrorCode::kInvalidArgument, "{}: {} {}", origin_, path_of(name),
                            what);
}

void Fields::absorb(const Fields& inner) {
  if (!error_) error_ = inner.error_;
}

ckpt::Status Fields::status() const {
  if (error_) return *error_;
  return ckpt::ok_status();
}

const nlohmann::json* Fields::find(const char* name, const char* type) {
  const auto found = object_->find(name);
  if (found != object_->end()) return &*found;
  fail(name, fmt::format("is missing (expected {})", type));
  return nullptr;
}

uint64_t Fields::count(const char* name) {
  const auto* value = find(name, "a count");
  if (value == nullptr) return 0;
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  fail(name, "is not a count");
  return 0;
}

double Fields::number(const char* name) {
  const auto* value = find(name, "a number");
  if (value == nullptr) return 0;
  if (value->is_number()) return value->get<double>();
  fail(name, "is not a number");
  return 0;
}

std::optional<double> Fields::number_or_null(const char* name) {
  const auto found = object_->find(name);
  if (found != object_->end() && found->is_null()) return std::nullopt;
  return number(name);
}

bool Fields::flag(const char* name) {
  const auto* value = find(name, "true or false");
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, "is neither true nor false");
  return false;
}

bool Fields::has(const char* name) const {
  const auto found = object_->find(name);
  return found != object_->end() && !found->is_null();
}

double Fields::number_or(const char* name, double fallback) {
  return object_->contains(name) ? number(name) : fallback;
}

uint64_t Fields::count_or(const char* name, uint64_t fallback) {
  return object_->contains(name) ? count(name) : fallback;
}

std::string Fields::text_or(const char* name, const std::string& fallback) {
  return object_->contains(name) ? text(name) : fallback;
}

std::string Fields::text(const char* name) {
  const auto* value = find(name, "text");
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  fail(name, "is not text");
  return {};
}

Fields Fields::object(const char* name) {
  const auto* value = find(name, "an object");
  return {value == nullptr ? empty_object() : *value, origin_, path_of(name)};
}

const nlohmann::json& Fields::array(const char* name) {
  const auto* value = find(name, "an array");
  if (value == nullptr) return empty_array();
  if (value->is_array()) return *value;
  fail(name, "is not an array");
  return empty_array();
}

const nlohmann::json& Fields::array_or_empty(const char* name) {
  return object_->contains(name) ? array(name) : empty_array();
}

}  // namespace moetrain::report
