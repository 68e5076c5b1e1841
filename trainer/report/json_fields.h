// Fields: reads typed fields of a JSON object and remembers the first that is missing or mistyped.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "formats/base/result.h"

namespace moetrain::report {

// Checked access without exceptions: every read gives a value (zero after a failure), and status()
// returns the first error, if there was one. Objects and arrays given are borrowed.
class Fields {
 public:
  // `origin` names the document; `path` the object in it, e.g. "failures[2]".
  Fields(const nlohmann::json& object, std::string origin, std::string path);

  uint64_t count(const char* name);
  double number(const char* name);
  bool flag(const char* name);
  // True if the field is there and not null.
  bool has(const char* name) const;
  double number_or(const char* name, double fallback);
  // The field must be there.
  std::optional<double> number_or_null(const char* name);
  std::string text(const char* name);
  uint64_t count_or(const char* name, uint64_t fallback);
  std::string text_or(const char* name, const std::string& fallback);
  // An object or array field; an empty one after a failure.
  Fields object(const char* name);
  const nlohmann::json& array(const char* name);
  const nlohmann::json& array_or_empty(const char* name);

  void fail(const char* name, const std::string& what);
  // Takes over the failure of an object inside this one.
  void absorb(const Fields& inner);
  ckpt::Status status() const;

 private:
  const nlohmann::json* find(const char* name, const char* type);
  std::string path_of(const char* name) const;

  const nlohmann::json* object_;
  std::string origin_;
  std::string path_;
  std::optional<ckpt::Error> error_;
};

}  // namespace moetrain::report
