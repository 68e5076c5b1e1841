#include "client/ctl/confirm.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <iostream>

#include "formats/base/console.h"
#include "formats/base/printable.h"

namespace ckptctl {

bool can_ask() { return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1; }

bool confirm(const std::string& question) {
  ckpt::base::print_stderr("{} [y/N] ", ckpt::base::escaped(question));
  std::string answer;
  if (!std::getline(std::cin, answer)) {
    ckpt::base::print_stderr("\n");
    return false;
  }
  std::ranges::transform(answer, answer.begin(),
                         [](unsigned char letter) { return std::tolower(letter); });
  return answer == "y" || answer == "yes";
}

}  // namespace ckptctl
