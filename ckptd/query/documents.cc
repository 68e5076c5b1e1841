#include "ckptd/query/documents.h"

#include <fmt/chrono.h>

#include <ctime>

#include "formats/base/json_dump.h"

namespace ckptd {

std::string iso_time(uint64_t time_ns) {
  const auto seconds = static_cast<std::time_t>(time_ns / 1'000'000'000);
  const uint64_t milliseconds = time_ns / 1'000'000 % 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", parts, milliseconds);
}

std::string hex32(uint32_t value) { return fmt::format("{:08x}", value); }

// If no expert has lost tokens, the trainer's PLT confirms it.
bool losses_recorded(const CommitInfo& commit) {
  const auto plt = commit.metrics.find("plt");
  return commit.lost_tokens > 0 || (plt != commit.metrics.end() && plt->second == 0);
}

Json attribute(std::optional<uint64_t> value) { return value ? Json(*value) : Json(); }

Json tensors_json(const ckpt::UnitSpec& spec) {
  Json tensors = Json::array();
  for (const ckpt::TensorSpec& tensor : spec.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", ckpt::dtype_name(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"offset", tensor.offset}});
  }
  return tensors;
}

// Names and reasons may contain bytes that are not UTF-8, which JSON cannot hold.
std::string dump(const Json& document) { return ckpt::base::dump_json(document); }

ckpt::Error changed_meanwhile(std::string_view what) {
  return ckpt::make_error(ckpt::ErrorCode::kUnavailable,
                          "run {}: it has changed since the answer's first page; ask again", what);
}

std::string envelope(const Page& page) {
  const Json next = page.next.empty() ? Json() : Json(fmt::format("{}", fmt::join(page.next, ".")));
  return fmt::format(R"({{"next":{},"lists":{},"document":{}}})", dump(next), dump(page.lists),
                     page.json);
}

}  // namespace ckptd
