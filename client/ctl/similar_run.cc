#include "client/ctl/similar_run.h"

#include <string_view>

#include "client/ctl/print_values.h"
#include "formats/base/cli_errors.h"

namespace ckptctl {
namespace {

// The name in "run NAME: no such run"; empty: another error.
std::string unknown_run(std::string_view message) {
  constexpr std::string_view kBegin = "run ";
  constexpr std::string_view kEnd = ": no such run";
  if (message.size() < kBegin.size() + kEnd.size()) return {};
  if (!message.starts_with(kBegin) || !message.ends_with(kEnd)) return {};
  message.remove_prefix(kBegin.size());
  message.remove_suffix(kEnd.size());
  return std::string(message);
}

}  // namespace

ckpt::Error with_similar_name(const ckpt::Error& error, const std::vector<std::string>& names) {
  const std::string nearest = ckpt::base::nearest_name(unknown_run(error.message), names);
  if (nearest.empty()) return error;
  // Without the detail: it would make the caller suggest another next step.
  return ckpt::make_error(error.code, "{}; did you mean {}?", error.message,
                          ckpt::base::cli_errors::quoted(nearest));
}

ckpt::Error with_similar_run(Link& link, const ckpt::Error& error) {
  if (unknown_run(error.message).empty()) return error;
  const Result<Json> runs = link.document("runs", Json::object());
  if (!runs.ok()) return error;
  std::vector<std::string> names;
  for (const Json& run : *runs) names.push_back(text(run, "run"));
  return with_similar_name(error, names);
}

}  // namespace ckptctl
