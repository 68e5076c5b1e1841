// A folder of a test's own.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace ckpt::test {

// A folder under the test's temporary folder, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = testing::TempDir() + "/ckptXXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() { std::filesystem::remove_all(path_); }
  const std::string& root() const { return path_; }
  std::string path(const std::string& name = "") const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace ckpt::test
