// Private to this folder: long lists of flat JSON objects, written as they are made. As a tree of
// values, what a view says of 30,000 units takes several times as long as looking it up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ckptd/query/documents.h"

namespace ckptd {

class Rows {
 public:
  // The last member of `document`, an object. `expected` rows, about: memory is taken once.
  Rows(const Json& document, std::string_view name, size_t expected = 0);

  // Begins the next object; its members follow. Their names are ours: nothing in them is escaped.
  void begin();
  void add(std::string_view name, std::optional<uint64_t> value);  // nullopt: null
  void add(std::string_view name, std::string_view value);  // bytes that are not UTF-8 are replaced

  // The document, complete.
  std::string text() &&;

 private:
  static constexpr size_t kRowBytes = 224;

  void begin_member(std::string_view name);

  std::string text_;
  bool in_row_ = false;
  bool has_members_ = false;
};

}  // namespace ckptd
