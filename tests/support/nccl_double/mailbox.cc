#include "tests/support/nccl_double/mailbox.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace nccl_double {

namespace fs = std::filesystem;

void die(const std::string& what) {
  std::fprintf(stderr, "nccl_double: %s\n", what.c_str());
  std::abort();
}

std::string make_mailbox() {
  const char* const folder = std::getenv("NCCL_DOUBLE_FOLDER");
  const fs::path parent = folder != nullptr ? fs::path(folder) : fs::temp_directory_path();
  std::string path = (parent / "nccl-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) die(path + ": " + std::strerror(errno));
  return path;
}

// Only one rank posts a given name, so no other rank writes the temporary file.
void post(const std::string& mailbox, const std::string& name, const Bytes& bytes) {
  const fs::path aside = fs::path(mailbox) / ("." + name);
  std::ofstream file(aside, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  std::error_code error;
  if (file) fs::rename(aside, fs::path(mailbox) / name, error);
  if (!file || error) die("cannot post " + (fs::path(mailbox) / name).string());
}

bool is_posted(const std::string& mailbox, const std::string& name) {
  std::error_code ignored;
  return fs::exists(fs::path(mailbox) / name, ignored);
}

Bytes read_message(const std::string& mailbox, const std::string& name) {
  const fs::path path = fs::path(mailbox) / name;
  std::error_code error;
  Bytes bytes(fs::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (error || !file) die("cannot read " + path.string());
  return bytes;
}

Bytes take(const std::string& mailbox, const std::string& name) {
  Bytes bytes = read_message(mailbox, name);
  std::error_code ignored;
  fs::remove(fs::path(mailbox) / name, ignored);
  return bytes;
}

void remove_mailbox(const std::string& mailbox) {
  std::error_code ignored;
  fs::remove_all(mailbox, ignored);
}

}  // namespace nccl_double
