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
  return {
      .catalog = history.catalog(),
      .may_read = [&session](const RunInfo& run) { return may(session, run, ckpt::Right::kRead); },
      .sources = &readers.sources(),
      .uid = session.uid,
      .may_connect = options.may_connect,
      .memory_versions =
          [this, uid = session.uid](ckpt::RunId run) {
            return MemoryVersions(*staging, history.catalog(), uid, run);
          },
      .damages = scrub.state().damages};
}

void Daemon::Impl::query(Session& session, const fb::QueryT& message) {
  if (is_catalog_verb(message.verb)) {
    const QueryContext context = query_context(session);
    const auto whole =
        history.read([&] { return Result(answer_query(context, message.verb, message.args)); });
    return replies.answer(session.id, message.request,
                          whole.ok() ? *whole : error_answer(whole.error()));
  }
  if (message.verb == "verify") return readers.verify(session, message, query_context(session));
  if (message.verb == "scrub") {
    return replies.answer(session.id, message.request, scrub.query(session, message.args));
  }
  if (Administration::handles(message.verb)) return administration.administer(session, message);
  if (message.verb == "gc") return space.query(session, message.request);
  if (message.verb == "rebuild") {
    return replies.answer(session.id, message.request, query_rebuild(session));
  }
  if (message.verb == "ping")
    return replies.answer(session.id, message.request, {.json = "{}"});  // alive
  if (message.verb == "join")
    return replies.answer(session.id, message.request, epochs.query_join(session));
  if (message.verb == "status") {
    update_health();
    return replies.answer(session.id, message.request, status_answer(status_views(), session));
  }
  replies.answer(
      session.id, message.request,
      error_answer(make_error(ErrorCode::kInvalidArgument, "{}: this daemon has no such question",
                              ckpt::base::printable(message.verb))));
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
