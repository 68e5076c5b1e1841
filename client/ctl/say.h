// Messages of ckptctl on stderr, one line each.
//
// Names come from files and from other users' runs. Control characters in them are escaped,
// newlines too: a file name must neither hide the text behind it nor forge a line of ckptctl.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "formats/base/console.h"
#include "formats/base/printable.h"

namespace ckptctl {

inline void say_line(std::string_view line) {
  ckpt::base::print_stderr("ckptctl: {}\n", ckpt::base::escaped(line));
}

// say("{} written", path) prints "ckptctl: model.svg written".
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say_line(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  say_line("warning: " + fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ckptctl
