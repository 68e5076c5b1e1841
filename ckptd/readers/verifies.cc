#include "ckptd/readers/verifies.h"

#include <optional>

#include "ckptd/limits.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Names of the runs that a verify reads completely; the empty name is the journal.
std::vector<std::string> whole_runs_of(const Catalog& catalog, const VerifyTarget& target) {
  std::vector<std::string> names;
  if (target.point) return names;
  if (target.journal) names.emplace_back();
  for (const ckpt::RunId id : target.runs) {
    if (const auto run = catalog.run(id); run.ok()) names.push_back(run->name);
  }
  return names;
}

}  // namespace

void Verifies::start(const Session& session, const ckpt::fb::QueryT& message,
                     const QueryContext& context) {
  const auto fail = [&](const ckpt::Error& error) {
    needs_.replies.answer(session.id, message.request, error_answer(error));
  };
  const auto target = needs_.history.read([&] { return parse_verify_args(context, message.args); });
  if (!target.ok()) return fail(target.error());
  if (verifies_.size() >= limits::kVerifiesMax) {
    return fail(make_error(ErrorCode::kResourceExhausted,
                           "{} verifies are running, the most that run at once: wait for one",
                           verifies_.size()));
  }
  const auto hold = needs_.holds.hold_verified(session, *target);
  if (!hold.ok()) return fail(hold.error());
  const uint64_t id = next_++;
  Verify& verify = verifies_[id];
  verify.hold = *hold;
  verify.session = session.id;
  verify.request = message.request;
  verify.reading = needs_.numbers.begin();
  verify.whole_runs = whole_runs_of(needs_.history.catalog(), *target);
  verify.began_ns = needs_.turn.wall_clock_ns();
  verify.job = std::make_unique<VerifyJob>(
      needs_.context(), target->runs, target->point,
      [this, id](const VerifyReport& report) {
        counters_.errors += report.errors.size() + report.errors_left_out;
        // The job must not be destroyed inside its own callback.
        needs_.turn.defer([this, id, report] { done(id, report); });
      },
      target->journal ? std::optional(needs_.history.journal_source()) : std::nullopt);
  verify.job->start();
}

void Verifies::done(uint64_t id, const VerifyReport& report) {
  const auto found = verifies_.find(id);
  if (found == verifies_.end()) return;
  Verify over = std::move(found->second);
  verifies_.erase(found);
  over.reading.end();
  needs_.holds.release(over.session, over.hold);
  needs_.on_reader_gone();
  needs_.on_verified(report, over.whole_runs, over.began_ns);
  needs_.replies.answer(over.session, over.request, verify_answer(report));
}

void Verifies::session_lost(ckpt::SessionId session) {
  for (auto verify = verifies_.begin(); verify != verifies_.end();) {
    if (verify->second.session == session) {
      needs_.closing.close(std::move(verify->second.job), {});
      verify = verifies_.erase(verify);
    } else {
      ++verify;
    }
  }
}

void Verifies::close_all() {
  for (auto& [id, verify] : verifies_) needs_.closing.close(std::move(verify.job), {});
  verifies_.clear();
}

}  // namespace ckptd
