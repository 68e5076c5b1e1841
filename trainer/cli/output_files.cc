#include "trainer/cli/output_files.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "trainer/report/open_output.h"
#include "trainer/report/output_path.h"
#include "trainer/report/report.h"

namespace moetrain {

namespace {

namespace fs = std::filesystem;
using ckpt::base::UniqueFd;

struct OutputFile {
  std::string_view flag;
  const std::string& path;
  bool appended;  // line by line to the existing file; else written beside it and renamed
};

// True if both names are one file, links resolved. False for files without bytes: /dev/null, a
// pipe.
bool is_same_file(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  std::error_code error;
  const fs::file_status status = fs::status(a, error);
  if (fs::exists(status)) return fs::is_regular_file(status) && fs::equivalent(a, b, error);
  const fs::path whole_a =
      fs::weakly_canonical(fs::absolute(report::end_of_links(a), error), error);
  const fs::path whole_b =
      fs::weakly_canonical(fs::absolute(report::end_of_links(b), error), error);
  return !whole_a.empty() && whole_a == whole_b;
}

// Lines are appended through the path itself, even if it names a descriptor of this process.
ckpt::Result<UniqueFd> check_writable(const OutputFile& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file.path, error);
  if (file.appended && fs::is_other(status)) return report::open_output(file.path);
  const bool writable = fs::is_regular_file(status) && ::access(file.path.c_str(), W_OK) == 0;
  if (file.appended && writable) return UniqueFd();
  return report::check_writable(file.path);
}

}  // namespace

ckpt::Result<HeldOutputs> check_outputs(const OutputFlags& outputs) {
  const std::array<OutputFile, 4> files = {{{"--report", outputs.report, false},
                                            {"--metrics", outputs.metrics, true},
                                            {"--events", outputs.events, true},
                                            {"--schedule-trace", outputs.schedule_trace, false}}};
  std::vector<UniqueFd> held;
  for (size_t i = 0; i < files.size(); ++i) {
    const auto& [flag, path, appended] = files[i];
    if (path.empty()) continue;
    ckpt::Result<UniqueFd> writable = check_writable(files[i]);
    if (!writable.ok()) {
      return ckpt::make_error(writable.error().code, "{} {}", flag, writable.error().message);
    }
    for (size_t earlier = 0; earlier < i; ++earlier) {
      if (!is_same_file(files[earlier].path, path)) continue;
      return ckpt::make_error(ckpt::ErrorCode::kInvalidArgument,
                              "{} {}: {} names the same file, and each would overwrite the other; "
                              "give each a file of its own",
                              flag, path, files[earlier].flag);
    }
    if (writable->valid()) held.push_back(std::move(writable).value());
  }
  return std::make_shared<const std::vector<UniqueFd>>(std::move(held));
}

}  // namespace moetrain
