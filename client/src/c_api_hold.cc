#include <ckpt/ckpt_hold.h>

#include "client/src/c_api.h"
#include "client/src/holds.h"

struct ckpt_hold {
  ckpt_session* session;
  std::unique_ptr<ckpt::lib::Hold> hold;
};

namespace ckpt::lib {
namespace {

constexpr uint32_t kHoldTimeoutMs = 10'000;

Result<HoldOptions> hold_options(const Session& session, const ckpt_hold_options& raw) {
  HoldOptions options;
  options.run = raw.run != nullptr ? raw.run : session.options().run;
  CKPT_TRY(validate_name("run", options.run));
  options.lineage = raw.lineage;
  options.step = raw.step;
  options.latest = raw.latest != 0;
  options.tag = raw.tag != nullptr ? raw.tag : "";
  options.newest = raw.newest != 0;
  if (options.newest && (options.latest || !options.tag.empty())) {
    return make_error(ErrorCode::kInvalidArgument,
                      "run {}: `newest` goes with a step, not with `latest` or a tag", options.run);
  }
  return options;
}

}  // namespace
}  // namespace ckpt::lib

using namespace ckpt;       // NOLINT(google-build-using-namespace): this file is the ABI's other
using namespace ckpt::lib;  // NOLINT(google-build-using-namespace): side, nothing includes it

ckpt_status ckpt_hold_take(ckpt_session* session, const ckpt_hold_options* options,
                           ckpt_hold** hold) {
  return run_call(*session->session, [&]() -> Status {
    if (hold == nullptr) return missing("hold");
    *hold = nullptr;
    const ckpt_hold_options raw = copy_options(options);
    CKPT_ASSIGN(const HoldOptions wanted, hold_options(*session->session, raw));
    auto handle = std::make_unique<ckpt_hold>();
    handle->session = session;
    const auto deadline = Deadline::after_ms(or_default(raw.timeout_ms, kHoldTimeoutMs));
    CKPT_ASSIGN(handle->hold, Hold::take(*session->session, wanted, deadline));
    *hold = handle.release();
    return ok_status();
  });
}

ckpt_status ckpt_hold_query(const ckpt_hold* hold, ckpt_hold_info* info) {
  return run_call(*hold->session->session, [&]() -> Status {
    if (info == nullptr) return missing("info");
    ckpt_hold_info out{};
    out.lineage = hold->hold->lineage();
    out.step = hold->hold->step();
    out.lease_ms = hold->hold->lease_ms();
    copy_out(out, info);
    return ok_status();
  });
}

ckpt_status ckpt_hold_renew(ckpt_hold* hold, uint32_t timeout_ms) {
  return run_call(*hold->session->session,
                  [&] { return hold->hold->renew(Deadline::after_ms(timeout_ms)); });
}

void ckpt_hold_release(ckpt_hold* hold) { delete hold; }
