#include "ckptd/administration/rules.h"

#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

#include "ckptd/retention/prune.h"
#include "ckptd/sessions/access.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::Status;

namespace {

QueryAnswer rules_answer(History& history, const QueryContext& query, const RunInfo& run) {
  const auto answer = history.read([&] { return Result(keep_answer(query, run)); });
  return answer.ok() ? *answer : error_answer(answer.error());
}

}  // namespace

void change_rules(const ChangeContext& context, const Session& session,
                  const RequestedChange& change) {
  History& history = context.history;
  const QueryContext query = context.query_context(session);
  const auto keep = history.read([&] { return parse_keep_args(query, change.args); });
  if (!keep.ok()) return context.refuse(change, keep.error());
  if (!keep->rules) {
    return context.queue.answer(change, rules_answer(history, query, keep->run));
  }
  const Status allowed = check_may(session, keep->run, {ckpt::Right::kPrune});
  if (!allowed.ok()) return context.refuse(change, allowed.error());
  // `{}` removes the rules.
  if (!keep->rules->empty()) {
    const Status useful =
        history.read([&] { return check_rules(history.catalog(), keep->run.id, *keep->rules); });
    if (!useful.ok()) return context.refuse(change, useful.error());
  }
  fb::RulesSetT rules = ckpt::to_fb(*keep->rules);
  rules.run = keep->run.id;
  rules.time_ns = context.turn.wall_clock_ns();
  std::vector<fb::RecordT> records;
  records.push_back(make_record(std::move(rules)));
  context.queue.record(change, std::move(records), [&history, run = keep->run] {
    return rules_answer(history, {.catalog = history.catalog()}, run);
  });
}

void change_grant(const ChangeContext& context, const Session& session,
                  const RequestedChange& change) {
  History& history = context.history;
  const QueryContext query = context.query_context(session);
  const auto grant = history.read([&] { return parse_grant_args(query, change.args); });
  if (!grant.ok()) return context.refuse(change, grant.error());
  if (!grant->user) return context.queue.answer(change, grant_answer(query, grant->run));
  const Status allowed = check_owner(session, grant->run);
  if (!allowed.ok()) return context.refuse(change, allowed.error());
  fb::GrantedT granted = ckpt::to_fb(*grant->user, grant->rights);
  granted.run = grant->run.id;
  granted.time_ns = context.turn.wall_clock_ns();
  spdlog::info("run {}: user {} may {}, says user {}", grant->run.name, *grant->user,
               grant->rights.any() ? fmt::format("{}", fmt::join(right_names(grant->rights), ", "))
                                   : "do nothing",
               session.uid);
  std::vector<fb::RecordT> records;
  records.push_back(make_record(std::move(granted)));
  context.queue.record(
      change, std::move(records), [&history, may_connect = query.may_connect, run = grant->run] {
        return grant_answer({.catalog = history.catalog(), .may_connect = may_connect}, run);
      });
}

}  // namespace ckptd
