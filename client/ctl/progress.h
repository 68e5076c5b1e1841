// A progress bar on stderr, where that is a terminal; otherwise nothing.
#pragma once

#include <cstdint>
#include <string>

namespace ckptctl {

class Progress {
 public:
  explicit Progress(std::string what);
  void start(uint64_t bytes_total);
  void add(uint64_t bytes);
  void finish();

 private:
  void draw() const;
  std::string what_;
  bool terminal_;
  uint64_t bytes_ = 0;
  uint64_t bytes_total_ = 0;
};

}  // namespace ckptctl
