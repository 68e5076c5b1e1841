#include "client/src/cuda/direct_restore.h"

#include <cstdlib>
#include <string_view>

#include "formats/base/printable.h"

namespace ckpt::lib {

Result<ckpt_direct> direct_mode(const ckpt_restore_options& options) {
  if (options.direct != CKPT_DIRECT_DEFAULT) {
    if (options.direct >= CKPT_DIRECT_OFF && options.direct <= CKPT_DIRECT_REQUIRED) {
      return options.direct;
    }
    return make_error(ErrorCode::kInvalidArgument, "direct {}: no such mode",
                      static_cast<int>(options.direct));
  }
  const char* const text = std::getenv("CKPTD_CUFILE");
  const std::string_view word = text != nullptr ? text : "";
  if (word.empty() || word == "off") return CKPT_DIRECT_OFF;
  if (word == "auto") return CKPT_DIRECT_AUTO;
  if (word == "required") return CKPT_DIRECT_REQUIRED;
  return make_error(ErrorCode::kInvalidArgument, "CKPTD_CUFILE={}: may be off, auto or required",
                    base::printable(word));
}

std::shared_ptr<CuFile> CuFileOnDemand::get(int device, uint32_t timeout_ms) {
  if (asked_) return library_;
  asked_ = true;
  const char* const path = std::getenv("CKPTD_CUFILE_LIBRARY");
  auto library = CuFile::open(
      {.library = path != nullptr ? path : "", .device = device, .timeout_ms = timeout_ms});
  if (library.ok()) {
    library_ = std::move(library).value();
  } else {
    why_ = "cuFile: " + library.error().message;
  }
  return library_;
}

}  // namespace ckpt::lib
