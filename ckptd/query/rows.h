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
  // The last member of `document`, an object; without a name the rows are the document. `room`:
  // bytes that all of it may take. `expected` rows, about: memory is taken once.
  Rows(const Json& document, std::string_view name, size_t room, size_t expected = 0);

  // A row that is there as a whole. False: the page has no room for it, and ends before it. The
  // first one always has.
  bool add_row(const Json& row);
  // Begins the next object; its members follow, then end(). Their names are ours: nothing in them
  // is escaped.
  void begin();
  bool end();                                                      // as add_row()
  void add(std::string_view name, std::optional<uint64_t> value);  // nullopt: null
  void add(std::string_view name, std::string_view value);  // bytes that are not UTF-8 are replaced

  // The document, complete; `after`, an object, has members that follow the rows.
  std::string text(const Json& after = Json::object()) &&;

 private:
  static constexpr size_t kRowBytes = 224;

  void begin_member(std::string_view name);

  void begin_row();
  bool keep_row();

  std::string text_;
  const bool is_member_;
  const size_t room_;
  size_t rows_begin_ = 0;  // in the text
  size_t row_begin_ = 0;
  bool has_members_ = false;
};

}  // namespace ckptd
