// Private to this folder: long lists of flat JSON objects, written directly as text. Building a
// tree of values for the 30,000 units of a view takes several times as long as reading them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ckptd/query/documents.h"

namespace ckptd {

class Rows {
 public:
  // `name`: the last member of `document`; empty: the rows are the document. `room`: bytes for the
  // whole document. `expected`: estimated number of rows, for one allocation.
  Rows(const Json& document, std::string_view name, size_t room, size_t expected = 0);

  // Adds a complete row. False: the row does not fit, and the page ends before it. The first row
  // always fits.
  bool add_row(const Json& row);
  // Begins the next object; its members follow, then end(). Member names are fixed by the code, and
  // are not escaped.
  void begin();
  bool end();                                                      // as add_row()
  void add(std::string_view name, std::optional<uint64_t> value);  // nullopt: null
  void add(std::string_view name, std::string_view value);         // invalid UTF-8 is replaced

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
