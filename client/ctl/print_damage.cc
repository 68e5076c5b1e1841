#include "client/ctl/print_damage.h"

#include <fmt/format.h>

#include "client/ctl/print_values.h"
#include "formats/base/counted.h"

namespace ckptctl {
namespace {

uint64_t damaged_units(const Json& document) {
  const Json count = member(document, "damaged_units");
  return count.is_number_unsigned() ? count.get<uint64_t>() : 0;
}

// Collects lines up to a bound, and counts the rest.
class DamageLines {
 public:
  void add(std::string_view line) {
    if (lines_ == kLinesMax) return leave_out(1);
    text_ += fmt::format("{}\n", line);
    ++lines_;
  }
  void leave_out(uint64_t lines) { left_out_ += lines; }
  std::string text(const Json& remedy) && {
    if (lines_ == 0) return {};
    std::string out = "\n" + text_;
    if (left_out_ > 0) {
      out += fmt::format("and {} more: ckptctl scrub --status lists what is damaged\n", left_out_);
    }
    if (!remedy.is_null()) out += fmt::format("what to do: {}\n", ckptctl::text(remedy));
    return out;
  }

 private:
  static constexpr uint64_t kLinesMax = 16;
  std::string text_;
  uint64_t lines_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace

std::string level_of_commit(const Json& commit) {
  const uint64_t units = damaged_units(commit);
  std::string level = text(commit, "level");
  if (units == 0 || level == "damaged") return level;
  return fmt::format("{}, {}", level, ckpt::base::counted(units, "damaged unit"));
}

std::string level_of_unit(const Json& unit) {
  return member(unit, "damage").is_null() ? text(unit, "level") : "damaged";
}

std::string log_damage_lines(const Json& log) {
  DamageLines lines;
  Json remedy;
  for (const Json& commit : log) {
    const std::string name = text(commit, "name");
    if (member(commit, "level") == "damaged") {
      lines.add(fmt::format("{} is damaged: {}", name, text(commit, "reason")));
    }
    const Json named = member(commit, "damage");
    for (const Json& damage : named) {
      lines.add(fmt::format("{}: unit {} is damaged: {}", name, text(damage, "unit"),
                            text(damage, "reason")));
    }
    const uint64_t units = damaged_units(commit);
    if (units > named.size()) lines.leave_out(units - named.size());
    if (remedy.is_null()) remedy = member(commit, "remedy");
  }
  return std::move(lines).text(remedy);
}

std::string show_damage_lines(const Json& view) {
  DamageLines lines;
  if (const Json why = member(view, "lost"); !why.is_null()) {
    lines.add(fmt::format("not complete: {}", text(why)));
  }
  if (const Json why = member(view, "damaged"); !why.is_null()) {
    lines.add(fmt::format("this commit is damaged: {}", text(why)));
  }
  for (const Json& unit : member(view, "units")) {
    if (member(unit, "damage").is_null()) continue;
    lines.add(fmt::format("unit {} is damaged: {}", text(unit, "unit"), text(unit, "damage")));
  }
  return std::move(lines).text(member(view, "remedy"));
}

}  // namespace ckptctl
