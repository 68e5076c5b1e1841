// RecordFile: a file of JSON lines, appended to during a run (--metrics, --events).
//
// A line that cannot be written (disk full, file size limit, a pipe without a reader) is lost;
// training continues. append() reports when lines begin to be lost, and when they are written
// again; the file never holds a part of a line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/base/result.h"
#include "formats/base/unique_fd.h"

namespace moetrain {

class RecordFile {
 public:
  // Creates the file, or empties it. The error is that of report::open_output().
  ckpt::Status open(const std::string& path);
  bool is_open() const { return fd_.valid(); }

  // Appends `line`, which ends with a newline; does nothing if no file is open. Returns a sentence
  // for the user if lines begin to be lost, or no longer are; else an empty string.
  [[nodiscard]] std::string append(std::string_view line);

  uint64_t lines_lost() const { return lines_lost_; }
  // "FILE: 3 lines are missing: No space left on device"; empty: none are.
  std::string loss() const;

 private:
  // 0, or errno; then the file ends where it ended before.
  int write_whole(std::string_view line);

  ckpt::base::UniqueFd fd_;
  std::string path_;
  uint64_t lines_lost_ = 0;
  int error_ = 0;        // of the last line that was lost
  bool losing_ = false;  // the last line was lost
};

}  // namespace moetrain
