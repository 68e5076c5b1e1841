#include "client/ctl/heat_map.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "formats/base/counted.h"
#include "formats/base/printable.h"

namespace ckptctl {
namespace {

// Colours of viridis in the terminal's palette of 256: dark is fresh, bright needs attention, also
// for readers who cannot tell red from green.
constexpr std::array<int, kHeatLevels> kTerminalColours = {53, 60, 24, 30, 36, 77, 149, 226};
constexpr std::string_view kCharacters = ".:-=+*%@";
constexpr int kColumnsMin = 24;
constexpr int kColumnsMax = 400;
// An expert number is an untrusted 32-bit value; a larger map becomes a list.
constexpr uint64_t kExpertsMax = 1u << 16;

struct Theme {
  const char* field;
  const char* unit;
  const char* title;
  const char* none;  // "none of 8 experts ..." if all values are 0
  bool of_version;   // missing units have no such value
};

Theme theme_of(HeatBy by) {
  switch (by) {
    case HeatBy::kStaleness:
      return {"staleness", "steps", "steps each expert is behind", "is behind the view's step",
              true};
    case HeatBy::kLostTokens:
      return {"lost_tokens", "tokens", "tokens each expert would lose in a restore",
              "would lose a token", true};
    case HeatBy::kLostSoFar:
      break;
  }
  return {"lost_so_far", "tokens", "tokens each expert has lost so far", "has lost a token so far",
          false};
}

HeatCell cell_of(const Json& expert, const Theme& theme) {
  const auto version = expert.find("version_step");
  const bool missing = version == expert.end() || version->is_null();
  if (theme.of_version && missing) return {.kind = HeatCell::Kind::kMissing};
  const auto value = expert.find(theme.field);
  if (value == expert.end() || !value->is_number_unsigned()) {
    return {.kind = HeatCell::Kind::kUnknown};
  }
  return {.kind = HeatCell::Kind::kKnown, .value = value->get<uint64_t>()};
}

// Fills HeatMap::alike.
std::string alike(const HeatMap& map, const Theme& theme) {
  size_t zeros = 0;
  size_t unknown = 0;
  size_t experts = 0;
  for (const HeatRow& row : map.rows) {
    for (const HeatCell& cell : row.cells) {
      experts += cell.kind == HeatCell::Kind::kAbsent ? 0 : 1;
      unknown += cell.kind == HeatCell::Kind::kUnknown ? 1 : 0;
      zeros += cell.kind == HeatCell::Kind::kKnown && cell.value == 0 ? 1 : 0;
    }
  }
  if (experts == 0) return {};
  using ckpt::base::counted;
  const std::string all =
      fmt::format("{} in {}", counted(experts, "expert"), counted(map.rows.size(), "layer"));
  if (zeros == experts) {
    return fmt::format("none of {} {}; --list shows the version of each", all, theme.none);
  }
  if (unknown != experts) return {};
  return fmt::format(
      "no tokens are counted for {}: the run did not save any counts; --by staleness "
      "shows how old each is",
      all);
}

// One cell of `width` columns.
std::string cell_text(const HeatCell& cell, uint64_t most, int width, const HeatStyle& style) {
  const auto wide = [&](char character) {
    return std::string(static_cast<size_t>(width), character);
  };
  if (cell.kind == HeatCell::Kind::kAbsent) return wide(' ');
  if (cell.kind == HeatCell::Kind::kMissing) return wide('!');
  if (cell.kind == HeatCell::Kind::kUnknown) return wide('?');
  const auto level = static_cast<size_t>(heat_level(cell.value, most));
  if (!style.colour) return wide(kCharacters[level]);
  return fmt::format("\x1b[48;5;{}m{}\x1b[0m", kTerminalColours[level], wide(' '));
}

// Wraps words to lines. Each word comes with its display width.
std::string wrapped(const std::vector<std::pair<std::string, size_t>>& words, size_t columns,
                    size_t gap) {
  std::string out;
  size_t used = 0;
  for (const auto& [word, width] : words) {
    if (used > 0 && used + gap + width > columns) {
      out += '\n';
      used = 0;
    }
    if (used > 0) out.append(gap, ' ');
    out += word;
    used += width + (used > 0 ? gap : 0);
  }
  return out + '\n';
}

// Wraps a title that is longer than a line.
std::string wrapped_title(const std::string& title, size_t columns) {
  std::vector<std::pair<std::string, size_t>> words;
  for (size_t at = 0; at < title.size();) {
    const size_t space = std::min(title.find(' ', at), title.size());
    const std::string word = title.substr(at, std::min(space - at, columns));
    words.emplace_back(word, word.size());
    at += word.size();
    if (at == space) ++at;
  }
  return wrapped(words, columns, 1);
}

// Legend: each colour with its range of values.
std::string legend(const HeatMap& map, const HeatStyle& style) {
  std::vector<std::pair<std::string, size_t>> words;
  bool unknown = false;
  bool missing = false;
  for (const HeatRow& row : map.rows) {
    for (const HeatCell& cell : row.cells) {
      unknown |= cell.kind == HeatCell::Kind::kUnknown;
      missing |= cell.kind == HeatCell::Kind::kMissing;
    }
  }
  const auto add = [&](const std::string& mark, const std::string& meaning) {
    words.emplace_back(mark + " " + meaning, 3 + meaning.size());
  };
  for (int level = 0; level < kHeatLevels; ++level) {
    // The largest value of the level.
    const uint64_t top =
        map.most / (kHeatLevels - 1) * static_cast<uint64_t>(level) +
        map.most % (kHeatLevels - 1) * static_cast<uint64_t>(level) / (kHeatLevels - 1);
    if (level > 0 && heat_level(top, map.most) != level) continue;  // a level without values
    add(cell_text({HeatCell::Kind::kKnown, top}, map.most, 2, style),
        fmt::format("{}{}", level > 0 ? "to " : "", top));
  }
  if (unknown) add("??", "not counted");
  if (missing) add("!!", "no version");
  words.emplace_back(map.unit, map.unit.size());
  return wrapped(words, static_cast<size_t>(style.columns), 2);
}

}  // namespace

int heat_level(uint64_t value, uint64_t most) {
  if (value == 0 || most == 0) return 0;
  // ceil(value * 7 / most) without overflow.
  const auto levels = static_cast<unsigned __int128>(kHeatLevels - 1);
  const unsigned __int128 scaled = value * levels;
  return static_cast<int>((scaled + most - 1) / most);
}

HeatMap heat_map(const Json& document, HeatBy by) {
  HeatMap map;
  const Theme theme = theme_of(by);
  map.unit = theme.unit;
  map.title =
      fmt::format("{}~{}@{}: {}", ckpt::base::escaped(document.value("run", "?")),
                  document.value("lineage", 0), document.value("step", uint64_t{0}), theme.title);
  size_t left_out = 0;
  for (const Json& layer : document.value("layers", Json::array())) {
    HeatRow row{.layer = layer.value("layer", uint64_t{0}), .cells = {}};
    for (const Json& expert : layer.value("experts", Json::array())) {
      const auto number = expert.value("expert", uint64_t{0});
      if (number >= kExpertsMax) {
        ++left_out;
        continue;
      }
      if (number >= row.cells.size()) row.cells.resize(number + 1);
      row.cells[number] = cell_of(expert, theme);
      map.most = std::max(map.most, row.cells[number].value);
    }
    map.experts = std::max(map.experts, row.cells.size());
    map.rows.push_back(std::move(row));
  }
  if (left_out > 0) {
    map.title += fmt::format(
        " ({} of {} or more not shown)",
        ckpt::base::counted(left_out, "expert with a number", "experts with numbers"), kExpertsMax);
  }
  map.alike = alike(map, theme);
  return map;
}

HeatStyle terminal_style() {
  HeatStyle style;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::strcmp(term, "dumb") == 0;
  style.colour = ::isatty(STDOUT_FILENO) == 1 && !dumb && (no_color == nullptr || *no_color == 0);
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    style.columns = size.ws_col;
  } else if (const char* columns = std::getenv("COLUMNS"); columns != nullptr) {
    std::from_chars(columns, columns + std::strlen(columns), style.columns);
  } else {
    style.wraps_text = false;  // a pipe or a file has no width
  }
  style.columns = std::clamp(style.columns, kColumnsMin, kColumnsMax);
  return style;
}

std::string heat_map_text(const HeatMap& map, const HeatStyle& style) {
  const size_t text_columns = style.wraps_text ? static_cast<size_t>(style.columns) : SIZE_MAX;
  const std::string title = wrapped_title(map.title, text_columns);
  if (map.experts == 0) return title + "no experts\n";
  if (!map.alike.empty()) return title + wrapped_title(map.alike, text_columns);
  size_t label = 5;  // "layer"
  for (const HeatRow& row : map.rows) label = std::max(label, fmt::formatted_size("{}", row.layer));
  const size_t room = static_cast<size_t>(style.columns) - label - 1;
  const int width = map.experts * 2 <= room ? 2 : 1;
  const size_t per_block = std::min(map.experts, room / static_cast<size_t>(width));
  std::string out = title;
  for (size_t first = 0; first < map.experts; first += per_block) {
    const size_t last = std::min(first + per_block, map.experts);
    out += fmt::format("{:>{}} expert{} {}{}\n", "layer", label, last - first == 1 ? "" : "s",
                       first, last - first == 1 ? "" : fmt::format("-{}", last - 1));
    for (const HeatRow& row : map.rows) {
      out += fmt::format("{:>{}} ", row.layer, label);
      for (size_t expert = first; expert < std::min(last, row.cells.size()); ++expert) {
        out += cell_text(row.cells[expert], map.most, width, style);
      }
      out += '\n';
    }
  }
  return out + legend(map, style);
}

}  // namespace ckptctl
