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

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

struct Failing {
  unsigned call = 0;
  bool has_argument = false;
  unsigned argument = 0;
  unsigned error = 0;
};

bool parse(const char* text, Failing& failing) {
  int end = 0;
  if (std::sscanf(text, "%u=%u%n", &failing.call, &failing.error, &end) == 2) {
    return text[end] == '\0';
  }
  failing.has_argument = true;
  return std::sscanf(text, "%u,%u=%u%n", &failing.call, &failing.argument, &failing.error, &end) ==
             3 &&
         text[end] == '\0';
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
