// without_calls CALL[,ARGUMENT]=ERRNO... -- PROGRAM ARGUMENTS...
//
// Becomes a program for which system calls fail, as they do in a sandbox, on an older kernel or on
// a file system without the feature: by a seccomp filter. CALL is the number of the call; with
// ARGUMENT the call fails only if its second argument is this.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <system_error>
#include <vector>

namespace {

struct Failing {
  unsigned call = 0;
  bool has_argument = false;
  unsigned argument = 0;
  unsigned error = 0;
};

// Takes a number off the front of `text`.
bool take_number(std::string_view& text, unsigned& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, char character) {
  if (!text.starts_with(character)) return false;
  text.remove_prefix(1);
  return true;
}

bool parse(std::string_view text, Failing& failing) {
  if (!take_number(text, failing.call)) return false;
  failing.has_argument = take(text, ',');
  if (failing.has_argument && !take_number(text, failing.argument)) return false;
  return take(text, '=') && take_number(text, failing.error) && text.empty();
}

void append(std::vector<sock_filter>& filter, const Failing& failing) {
  constexpr unsigned kSecondArgument = offsetof(seccomp_data, args) + 8;  // its low half
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, failing.call, 0,
                            static_cast<unsigned char>(failing.has_argument ? 3 : 1)));
  if (failing.has_argument) {
    filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kSecondArgument));
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, failing.argument, 0, 1));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | failing.error));
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kCannot = 125;
  std::vector<sock_filter> filter;
  int at = 1;
  for (; at < argc && std::strcmp(argv[at], "--") != 0; ++at) {
    Failing failing;
    if (!parse(argv[at], failing))
      return std::fprintf(stderr, "%s: not understood\n", argv[at]), kCannot;
    append(filter, failing);
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (at + 1 >= argc || ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::perror("without_calls");
    return kCannot;
  }
  ::execv(argv[at + 1], argv + at + 1);
  std::perror(argv[at + 1]);
  return kCannot;
}
