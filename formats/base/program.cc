#include "formats/base/program.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "formats/base/address_space.h"
#include "formats/base/console.h"
#include "formats/base/open_files.h"

namespace ckpt::base {

namespace {

constexpr int kFailed = 1;

const char* program_name = "";  // for on_terminate, which has no argument

// Occupies a standard descriptor that is closed. Reads of stdin and writes to stdout still fail, as
// their caller expects of a closed stream; writes to stderr are dropped.
bool occupy(int descriptor) {
  const int flags = descriptor == STDOUT_FILENO ? O_RDONLY : O_WRONLY;
  int opened = ::open("/dev/null", flags);
  // In a root directory without /dev: a descriptor that can be neither read nor written.
  if (opened < 0) opened = ::open("/", O_PATH);
  if (opened < 0 || opened == descriptor) return opened == descriptor;
  const bool moved = ::dup2(opened, descriptor) == descriptor;
  ::close(opened);
  return moved;
}

bool occupy_standard_descriptors() {
  bool all = true;
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF) all = occupy(descriptor) && all;
  }
  return all;
}

// One sentence for the exception being handled, if there is one.
std::string current_failure() {
  if (!std::current_exception()) return "it ended by a fault of its own" + address_space_hint();
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return "out of memory" + address_space_hint();
  } catch (const std::system_error& error) {
    return error.what() + address_space_hint() + open_files_hint(error.code().value());
  } catch (const std::exception& error) {
    return error.what() + address_space_hint();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

// For threads, whose exceptions run_program cannot catch.
[[noreturn]] void on_terminate() {
  print_stderr("{}: {}\n", program_name, current_failure());
  ::_exit(kFailed);
}

int run_body(const std::function<int()>& body) {
  try {
    return body();
  } catch (...) {
    print_stderr("{}: {}\n", program_name, current_failure());
    return kFailed;
  }
}

}  // namespace

int run_program(const char* name, const std::function<int()>& body) {
  program_name = name;
  const bool descriptors = occupy_standard_descriptors();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  std::set_terminate(on_terminate);
  if (!descriptors) {
    print_stderr("{}: no descriptor is free for stdin, stdout and stderr (ulimit -n)\n", name);
    return kFailed;
  }
  const int exit_code = run_body(body);
  const int error = flush_stdout();
  if (error == 0) return exit_code;
  // The reader closed the pipe, as `head` does: not an error to report.
  if (error != EPIPE) {
    print_stderr("{}: cannot write to stdout: {}; the output is not complete\n", name,
                 std::strerror(error));
  }
  return exit_code == 0 ? kFailed : exit_code;
}

}  // namespace ckpt::base
