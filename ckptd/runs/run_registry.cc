#include "ckptd/runs/run_registry.h"

#include "ckptd/runs/replace_run.h"
#include "ckptd/sessions/access.h"
#include "formats/wire/convert.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::Error;
using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::RunId;

namespace {

Error about_run(const std::string& run, const Error& error) {
  return reworded(error, fmt::format("run {}: {}", run, error.message));
}

fb::RecordT creation_of(RunId run, const Session& session, const std::string& metadata,
                        uint64_t time_ns) {
  fb::RunCreatedT created;
  created.run = run;
  created.name = session.run_name;
  created.uid = session.uid;
  created.time_ns = time_ns;
  created.metadata = metadata;
  return make_record(std::move(created));
}

fb::RecordT registration_of(RunId run, const std::vector<ckpt::UnitSpec>& units) {
  fb::UnitsRegisteredT registered;
  registered.run = run;
  registered.schema = ckpt::wire::to_fb(ckpt::schema_hash(units));
  for (size_t i = 0; i < units.size(); ++i) {
    registered.units.push_back(
        std::make_unique<fb::UnitT>(ckpt::wire::to_fb(units[i], static_cast<ckpt::UnitId>(i))));
  }
  return make_record(std::move(registered));
}

}  // namespace

void RunRegistry::refuse(const Session& session, const fb::RegisterUnitsT& message,
                         const Error& error) const {
  needs_.replies.refuse(session.id, message.request, about_run(session.run_name, error));
}

Result<std::vector<ckpt::UnitSpec>> RunRegistry::check(const fb::RegisterUnitsT& message) const {
  CKPT_TRY(check_metadata(message.metadata));
  CKPT_ASSIGN(std::vector<ckpt::UnitSpec> units, read_units(message));
  CKPT_TRY(needs_.check_requests(message));
  return units;
}

void RunRegistry::take(Session& session, const fb::RegisterUnitsT& message, bool may_replace) {
  const auto fail = [&](const Error& error) { refuse(session, message, error); };
  if (const Status named = ckpt::validate_name("run", session.run_name); !named.ok()) {
    return needs_.replies.refuse(session.id, message.request, named.error());
  }
  auto units = check(message);
  if (!units.ok()) return fail(units.error());
  if (const auto creating = creating_.find(session.run_name); creating != creating_.end()) {
    const Status waits = wait_for(creating->second, session, message, *units);
    return waits.ok() ? void() : fail(waits.error());
  }
  // A run that is in the journal and not yet in the catalog must not be created again.
  const Catalog& catalog = needs_.history.catalog();
  const auto run = needs_.history.read([&] { return catalog.run(session.run_name); });
  if (!run.ok()) {
    if (run.error().code != ErrorCode::kNotFound) return fail(run.error());
    return create(session, message, std::move(units).value(), nullptr);
  }
  if (const Status allowed = check_may(session, *run, {ckpt::Right::kRead}); !allowed.ok()) {
    return needs_.replies.refuse(session.id, message.request, allowed.error());
  }
  if (!needs_.gate.may(RunActivity::kRegister, run->id)) {
    return fail(make_error(ErrorCode::kUnavailable, "it is being removed; try again"));
  }
  const auto known = catalog.units(run->id);
  if (!known.ok()) return fail(known.error());
  // Registered, but the daemon died before its units were written.
  if ((*known)->empty() && may_use(session, run->uid)) {
    return create(session, message, std::move(units).value(), nullptr);
  }
  Status same = check_same_units(**known, catalog.base_units(run->id), *units);
  if (never_committed(*run, session.uid) && (!same.ok() || differs(*run, message.metadata))) {
    if (!may_replace) {
      const Status queued = needs_.queue_replacement(session.id, message);
      return queued.ok() ? void() : fail(queued.error());
    }
    const Status unused = needs_.may_remove(*run);
    if (unused.ok()) return create(session, message, std::move(units).value(), &*run);
    same = still_in_use(same, unused);
  }
  if (!same.ok()) return fail(same.error());
  session.run = run->id;
  if (may(session, *run, ckpt::Right::kCommit)) needs_.note_requests(session.run_name, message);
  needs_.replies.done(session.id, message.request);
}

Status RunRegistry::wait_for(Creating& creating, const Session& session,
                             const fb::RegisterUnitsT& message,
                             const std::vector<ckpt::UnitSpec>& units) const {
  if (!may_use(session, creating.uid)) {
    return make_error(ErrorCode::kPermissionDenied, "it belongs to user {}", creating.uid);
  }
  CKPT_TRY(check_same_units(creating.units, creating.units.size(), units));
  creating.waiting.emplace_back(session.id, message.request);
  needs_.note_requests(session.run_name, message);
  return {};
}

// Ends a `replaced` run; the new one gets its rules and grants.
void RunRegistry::create(const Session& session, const fb::RegisterUnitsT& message,
                         std::vector<ckpt::UnitSpec> units, const RunInfo* replaced) {
  const Status may_begin = needs_.check_new_run(message);
  if (!may_begin.ok()) return refuse(session, message, may_begin.error());
  const Catalog& catalog = needs_.history.catalog();
  const std::string& name = session.run_name;
  std::vector<fb::RecordT> records;
  const auto known = catalog.run(name);
  const bool is_new = !known.ok() || replaced != nullptr;
  const RunId id = is_new ? next_run_++ : known->id;
  if (replaced != nullptr) {
    records.push_back(removal_of_replaced(*replaced, needs_.turn.wall_clock_ns()));
  }
  if (is_new) {
    records.push_back(creation_of(id, session, message.metadata, needs_.turn.wall_clock_ns()));
  }
  records.push_back(registration_of(id, units));
  if (replaced != nullptr) {
    const ckpt::KeepRules rules = catalog.keep_rules(replaced->id);
    for (fb::RecordT& kept : kept_settings(*replaced, rules, id, needs_.turn.wall_clock_ns())) {
      records.push_back(std::move(kept));
    }
  }
  needs_.note_requests(name, message);
  Creating creating{.uid = session.uid,
                    .units = std::move(units),
                    .waiting = {{session.id, message.request}},
                    .registering = needs_.gate.begin(RunActivity::kRegister, id),
                    .replaced = std::nullopt};
  if (replaced != nullptr) {
    creating.replaced =
        Replaced{.run = *replaced,
                 .registration = message,
                 .administering = needs_.gate.begin(RunActivity::kAdminister),
                 .replacing = needs_.gate.begin(RunActivity::kReplace, replaced->id)};
  }
  creating_.emplace(name, std::move(creating));
  needs_.history.record(std::move(records),
                        [this, name, id](const Status& status) { written(name, id, status); });
}

void RunRegistry::written(const std::string& name, RunId run, const Status& status) {
  Creating created = std::move(creating_.at(name));
  creating_.erase(name);
  if (created.replaced) {
    created.replaced->replacing.release();
    created.replaced->administering.release();
    if (status.ok()) {
      needs_.on_run_gone(created.replaced->run);  // also drops the requests of its name
      needs_.note_requests(name, created.replaced->registration);
    }
  }
  created.registering.release();
  if (!status.ok()) needs_.forget_requests(name);
  // A catalog that could not take the run will have it later: until then it is unusable.
  const auto taken = status.ok()
                         ? needs_.history.read([&] { return needs_.history.catalog().run(run); })
                         : status.error();
  for (const auto& [id, request] : created.waiting) {
    Session* session = needs_.sessions.find(id);
    if (session == nullptr) continue;
    if (!taken.ok()) {
      needs_.replies.refuse(id, request, about_run(name, taken.error()));
      continue;
    }
    session->run = run;
    needs_.replies.done(id, request);
  }
}

}  // namespace ckptd
