// Standard output and standard error of a program. Either may be closed, full, or a pipe without a
// reader.
//
// fmt::print throws if a stream cannot be written. Here nothing throws: a failed write to stderr is
// ignored, because no other stream is left to report it; a failed write to stdout stays noted in
// the stream, and run_program (program.h) reports it and makes the program fail.
//
// Control characters that came in with names or messages are escaped (printable.h).
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace ckpt::base {

void write_stdout(std::string_view screen);  // may have colours
void write_stderr(std::string_view lines);

// A document for programs, as it is: dump_json (json_dump.h) has escaped it.
void write_stdout_exactly(std::string_view document);

// Writes out what is buffered. Returns the errno of the first write to stdout that failed; 0: none
// did.
int flush_stdout();

// Terminal control of our own (progress bars), as it is.
void write_stderr_exactly(std::string_view text);

// print_stderr("ckptctl: {} written\n", path);
template <typename... Args>
void print_stdout(fmt::format_string<Args...> format, Args&&... args) {
  write_stdout(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void print_stderr(fmt::format_string<Args...> format, Args&&... args) {
  write_stderr(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ckpt::base
