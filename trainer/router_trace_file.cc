#include "trainer/router_trace_file.h"

#include <span>
#include <utility>
#include <vector>

#include "formats/base/bytes.h"
#include "trainer/regular_file.h"

namespace moetrain {

namespace {

constexpr uint64_t kTraceBytesMax = uint64_t{1} << 30;

}  // namespace

Result<std::shared_ptr<const RouterTrace>> load_router_trace(const std::string& path) {
  std::vector<uint8_t> bytes;
  const Status read = append_regular_file(path, kTraceBytesMax, bytes);
  if (!read.ok()) {
    return ckpt::make_error(read.error().code, "{}: {}", path, read.error().message);
  }
  CKPT_ASSIGN(RouterTrace trace,
              RouterTrace::parse(ckpt::as_text(std::as_bytes(std::span(bytes))), path));
  return std::make_shared<const RouterTrace>(std::move(trace));
}

}  // namespace moetrain
