#include "client/ctl/unit_names.h"

#include <fmt/format.h>

#include "client/ctl/original_files.h"
#include "formats/base/hash.h"
#include "formats/unit.h"

namespace ckptctl {
namespace {

bool stays(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

std::string escaped(std::string_view name, size_t bytes_max) {
  std::string out;
  for (const char c : name) {
    const size_t before = out.size();
    if (stays(c)) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
    if (out.size() <= bytes_max) continue;
    out.resize(before);
    break;
  }
  return out;
}

}  // namespace

std::string unit_name_of(std::string_view name) {
  if (name.empty()) return "%";
  if (name == kTrainerUnit || name == kFilesUnit) {
    return fmt::format("%{:02X}{}", static_cast<unsigned char>(name.front()), name.substr(1));
  }
  std::string whole = escaped(name, ckpt::kUnitNameBytesMax + 1);
  if (whole.size() <= ckpt::kUnitNameBytesMax) return whole;
  constexpr size_t kHashBytes = 2 + 32;
  const ckpt::base::Hash128 hash = ckpt::base::hash128(ckpt::as_bytes(name));
  return fmt::format("{}%.{:016x}{:016x}", escaped(name, ckpt::kUnitNameBytesMax - kHashBytes),
                     hash.high, hash.low);
}

}  // namespace ckptctl
