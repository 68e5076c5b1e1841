#include "ckptd/background/scrub_control.h"

#include <unistd.h>

#include "ckptd/sessions/access.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

void ScrubControl::open(const RestoreContext& context) {
  Scrub::Options options{
      .bytes_per_second = needs_.bytes_per_second,
      .interval = needs_.interval,
      .wall_clock_ns = [turn = &needs_.turn] { return turn->wall_clock_ns(); },
      .others_busy = needs_.disk_wanted,
      .journal = needs_.history.journal_source(),
      // Without a journal no space is ever reclaimed, and the scrub continues.
      .may_begin =
          [this] {
            return !needs_.is_draining() && !needs_.space_wants_disk() && needs_.history.current();
          },
      .save_state =
          [this](const ScrubState& state) { return needs_.history.save_scrub_state(state); }};
  scrub_ = std::make_unique<Scrub>(context, needs_.history.catalog(), std::move(options));
}

void ScrubControl::close() {
  if (scrub_ != nullptr) scrub_->close([this] { closed_ = true; });
}

ScrubReport ScrubControl::report() const {
  ScrubReport report;
  report.state = scrub_->state();
  report.bytes_per_second = needs_.bytes_per_second;
  report.interval = needs_.interval;
  report.commits_waiting = scrub_->commits_waiting();
  const bool to_do = report.state.pass || report.commits_waiting > 0;
  report.doing = to_do ? "reading" : report.bytes_per_second == 0 ? "off" : "idle";
  if (scrub_->yielding()) report.doing = "yielding";
  return report;
}

QueryAnswer ScrubControl::query(const Session& session, const std::string& args) {
  if (!may_use(session, ::geteuid())) {
    return error_answer(
        make_error(ErrorCode::kPermissionDenied, "scrub: only for the daemon's own user and root"));
  }
  const auto parsed = parse_scrub_args(args);
  if (!parsed.ok()) return error_answer(parsed.error());
  std::optional<uint64_t> begun;
  if (parsed->start) {
    if (needs_.is_draining()) {
      return error_answer(
          make_error(ErrorCode::kUnavailable, "scrub: the daemon is shutting down"));
    }
    const auto number = scrub_->begin_pass(parsed->bytes_per_second);
    if (!number.ok()) return error_answer(number.error());
    begun = *number;
  }
  return scrub_answer(needs_.query_context(session), report(), begun);
}

}  // namespace ckptd
