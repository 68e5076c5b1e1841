// ParameterFile: a TOML file of numbers, each of which belongs to a named parameter. Every
// parameter is there exactly once; nothing else is. Errors name file, line and key.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/result.h"

namespace moetrain::simulate {

using ckpt::Result;
using ckpt::Status;

inline constexpr size_t kModelFileMax = 1 << 20;  // the shipped ones have 4 KB, comments included

// A parameter and the place of its value. `section` is a table of the file, "a" or "a.b".
struct ParameterSlot {
  std::string_view section, key;
  double low = 0, high = 0;  // the values that a file may give
  bool whole = false;        // a count
  double* value = nullptr;
};

class ParameterFile {
 public:
  // kInvalidArgument: not TOML, or more than kModelFileMax bytes.
  static Result<ParameterFile> parse(std::string_view text, const std::string& origin);
  ParameterFile(ParameterFile&&) noexcept;
  ParameterFile& operator=(ParameterFile&&) noexcept;
  ~ParameterFile();

  // The tables within the table `section`, in the order of the file.
  std::vector<std::string> tables_in(std::string_view section) const;

  // Sets every slot. kInvalidArgument: a section or key that no slot has, a key that is missing, a
  // value that is no number or out of its range.
  Status read(std::span<const ParameterSlot> slots) const;

 private:
  struct Parsed;
  explicit ParameterFile(std::unique_ptr<Parsed> parsed);
  std::unique_ptr<Parsed> parsed_;
};

// A slot's value from text. kInvalidArgument: "must be a whole number from 1 to 8".
Status check_value(const ParameterSlot& slot, double value);

}  // namespace moetrain::simulate
