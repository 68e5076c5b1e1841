// Queries and administration: ckptd/query answers from the catalog; verbs that need the disk or the
// journal are executed here.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "ckptd/daemon_impl.h"
#include "formats/base/json_dump.h"
#include "formats/base/printable.h"

namespace ckptd {

QueryContext Daemon::Impl::query_context(const Session& session) {
  return {.catalog = history.catalog(),
          .may_read = [this, &session](
                          const RunInfo& run) { return may(session, run, ckpt::Right::kRead); },
          .in_memory =
              [this, uid = session.uid](const SnapshotKey& snapshot, ckpt::UnitId unit,
                                        const FragmentPlace& place) {
                return staging->find_cached(uid, snapshot, unit, place.offset, place.length)
                    .has_value();
              },
          .memory_versions =
              [this, uid = session.uid](ckpt::RunId run) {
                return MemoryVersions(*staging, history.catalog(), uid, run);
              },
          .damages = scrub->state().damages,
          .memory_bytes_per_second = counters.restore_speeds.memory(),
          .segment_bytes_per_second = counters.restore_speeds.segment()};
}

void Daemon::Impl::query(Session& session, const fb::QueryT& message) {
  if (is_catalog_verb(message.verb)) {
    const QueryContext context = query_context(session);
    const auto whole =
        history.read([&] { return Result(answer_query(context, message.verb, message.args)); });
    return replies.answer(session.id, message.request,
                          whole.ok() ? *whole : error_answer(whole.error()));
  }
  if (message.verb == "verify") return query_verify(session, message);
  if (message.verb == "scrub") {
    return replies.answer(session.id, message.request, query_scrub(session, message.args));
  }
  if (Administration::handles(message.verb)) return administration.administer(session, message);
  if (message.verb == "gc") return query_gc(session, message.request);
  if (message.verb == "rebuild") {
    return replies.answer(session.id, message.request, query_rebuild(session));
  }
  if (message.verb == "ping")
    return replies.answer(session.id, message.request, {.json = "{}"});  // alive
  if (message.verb == "join")
    return replies.answer(session.id, message.request, query_join(session));
  if (message.verb == "status") {
    return replies.answer(session.id, message.request, query_status(session));
  }
  replies.answer(
      session.id, message.request,
      error_answer(make_error(ErrorCode::kInvalidArgument, "{}: this daemon has no such question",
                              ckpt::base::printable(message.verb))));
}

namespace {

// Names of the runs that a verify reads completely; the empty name is the journal.
std::vector<std::string> whole_runs(const Catalog& catalog, const VerifyTarget& target) {
  std::vector<std::string> names;
  if (target.point) return names;
  if (target.journal) names.emplace_back();
  for (const ckpt::RunId id : target.runs) {
    if (const auto run = catalog.run(id); run.ok()) names.push_back(run->name);
  }
  return names;
}

}  // namespace

// Reads in pieces between other work, and answers at the end.
void Daemon::Impl::query_verify(Session& session, const fb::QueryT& message) {
  const auto target =
      history.read([&] { return parse_verify_args(query_context(session), message.args); });
  if (!target.ok())
    return replies.answer(session.id, message.request, error_answer(target.error()));
  if (verifies.size() >= limits::kVerifiesMax) {
    return replies.answer(
        session.id, message.request,
        error_answer(make_error(ErrorCode::kResourceExhausted, "{} verifies are running, the most",
                                verifies.size())));
  }
  const auto hold = hold_verified(session, *target);
  if (!hold.ok()) return replies.answer(session.id, message.request, error_answer(hold.error()));
  const uint64_t id = next_verify++;
  Verify& verify = verifies[id];
  verify.hold = *hold;
  verify.session = session.id;
  verify.request = message.request;
  verify.reader = next_reader++;
  verify.whole_runs = whole_runs(history.catalog(), *target);
  verify.began_ns = turn.wall_clock_ns();
  verify.job = std::make_unique<VerifyJob>(
      restore_context(), target->runs, target->point,
      [this, id](const VerifyReport& report) {
        counters.verify_errors += report.errors.size() + report.errors_left_out;
        // The job must not be destroyed inside its own callback.
        turn.defer([this, id, report] {
          const auto found = verifies.find(id);
          if (found == verifies.end()) return;
          const Verify over = std::move(found->second);
          verifies.erase(found);
          holds.release(over.session, over.hold);
          reader_gone();
          scrub->verified(report, over.whole_runs, over.began_ns);
          replies.answer(over.session, over.request, verify_answer(report));
        });
      },
      target->journal ? std::optional(history.journal_source()) : std::nullopt);
  verify.job->start();
}

// Clears the index and fills it from the journal. Blocking: the loop stops while the journal is
// read, so that no client gets an answer from a partial index.
QueryAnswer Daemon::Impl::query_rebuild(const Session& session) {
  if (!may_use(session, ::geteuid())) {
    return error_answer(make_error(ErrorCode::kPermissionDenied,
                                   "rebuild: only for the daemon's own user and root"));
  }
  const Status status = history.rebuild();
  if (!status.ok()) return error_answer(status.error());
  size_t commits = 0;
  for (const RunInfo& run : history.catalog().runs()) commits += run.commits;
  spdlog::info("the catalog was rebuilt from {} journal records",
               history.catalog().applied_sequence());
  const nlohmann::json document = {{"records", history.catalog().applied_sequence()},
                                   {"runs", history.catalog().runs().size()},
                                   {"commits", commits}};
  return {.exit_code = 0, .json = ckpt::base::dump_json(document)};
}

}  // namespace ckptd
