// Sessions: greeting, arena, registration of the run's units, and cleanup of a lost session.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <set>

#include "ckptd/daemon_impl.h"
#include "ckptd/daemon_replace_run.h"
#include "ckptd/daemon_texts.h"
#include "formats/wire/frame.h"

namespace ckptd {

namespace {

constexpr char kServerName[] = "ckptd 0.1.0";

// Reads and checks the units that the client lists.
Result<std::vector<ckpt::UnitSpec>> read_units(const fb::RegisterUnitsT& message) {
  if (message.units.empty() || message.units.size() > limits::kUnitsPerRunMax) {
    return make_error(ErrorCode::kInvalidArgument, "{} units: a run has 1 to {}",
                      message.units.size(), limits::kUnitsPerRunMax);
  }
  std::vector<ckpt::UnitSpec> units;
  std::set<std::string_view> names;
  for (const auto& unit : message.units) {
    if (unit == nullptr || unit->id != units.size()) {
      return make_error(ErrorCode::kInvalidArgument,
                        "unit number {} is not at its place in the list", units.size());
    }
    CKPT_ASSIGN(ckpt::UnitSpec spec, ckpt::wire::from_fb(*unit));
    if (!names.insert(unit->name).second) {
      return make_error(ErrorCode::kInvalidArgument, "unit {}: registered twice", unit->name);
    }
    units.push_back(std::move(spec));
  }
  return units;
}

// Names the first unit that differs.
Status check_same_units(const std::vector<ckpt::UnitSpec>& known,
                        const std::vector<ckpt::UnitSpec>& given) {
  for (size_t i = 0; i < std::min(known.size(), given.size()); ++i) {
    if (known[i] == given[i]) continue;
    if (known[i].name != given[i].name) {
      return make_error(ErrorCode::kFailedPrecondition, "unit {} is {}, but was registered as {}",
                        i, given[i].name, known[i].name);
    }
    return make_error(ErrorCode::kFailedPrecondition,
                      "unit {}: {}, which is not as it was registered", given[i].name,
                      known[i].bytes != given[i].bytes
                          ? fmt::format("{} bytes instead of {}", given[i].bytes, known[i].bytes)
                          : "its attributes or tensors differ");
  }
  if (known.size() != given.size()) {
    return make_error(
        ErrorCode::kFailedPrecondition, "{} units, but {} were registered; {} {}", given.size(),
        known.size(),
        given.size() < known.size() ? known[given.size()].name : given[known.size()].name,
        given.size() < known.size() ? "is missing" : "is new");
  }
  return {};
}

// A session may queue one registration among the changes of history, because each holds a message.
Status queue_registration(std::deque<Administration>& waiting, SessionId session,
                          const fb::RegisterUnitsT& message) {
  const bool twice = std::ranges::any_of(waiting, [session](const Administration& task) {
    return task.registration && task.session == session;
  });
  if (twice || waiting.size() >= limits::kAdministrationsWaitingMax) {
    return make_error(ErrorCode::kResourceExhausted, "{}",
                      twice ? "this session waits for another registration already"
                            : "too many changes of history wait already");
  }
  waiting.push_back({.session = session,
                     .request = message.request,
                     .verb = {},
                     .args = {},
                     .registration = std::make_shared<fb::RegisterUnitsT>(message)});
  return {};
}

Error about_run(const std::string& run, const Error& error) {
  return Error{error.code, fmt::format("run {}: {}", run, error.message)};
}

}  // namespace

void Daemon::Impl::hello(Session& session, const fb::HelloT& message, ckpt::base::UniqueFd fd) {
  const auto reject = [&](const Error& error) {
    replies.refuse(session.id, 0, error);
    replies.disconnect(session.id, error.message);
  };
  if (session.greeted) {
    return reject(make_error(ErrorCode::kFailedPrecondition, "a session says hello once"));
  }
  const auto protocol = ckpt::wire::agree({}, ckpt::wire::offered_by(message));
  if (!protocol.ok()) return reject(protocol.error());
  if (draining) {
    return reject(make_error(ErrorCode::kUnavailable, "the daemon is shutting down"));
  }
  if (message.alarms > fb::AlarmPolicy::MAX) {
    return reject(make_error(ErrorCode::kInvalidArgument, "alarms {}: no such policy",
                             static_cast<int>(message.alarms)));
  }
  const bool trainer = message.kind == fb::SessionKind::Trainer;
  if (trainer || !message.run.empty()) {
    if (const Status named = ckpt::validate_name("run", message.run); !named.ok()) {
      return reject(named.error());
    }
  }
  fb::WelcomeT welcome;
  welcome.protocol_version = *protocol;
  welcome.session = session.id;
  welcome.store = ckpt::wire::to_fb(history.store_id());
  welcome.server = kServerName;
  welcome.holds = true;
  int fd_to_send = -1;
  if (trainer || message.arena_bytes > 0) {
    const Status granted = grant_arena(session, message, std::move(fd), welcome, &fd_to_send);
    if (!granted.ok()) return reject(granted.error());
  }
  session.greeted = true;
  session.protocol = *protocol;
  session.kind = message.kind;
  session.client = message.client;
  session.run_name = message.run;
  session.alarms = message.alarms == fb::AlarmPolicy::Default ? options.alarms : message.alarms;
  spdlog::debug("session {}: {} (process {}, protocol {}), run {}", session.id, session.client,
                session.pid, session.protocol, session.run_name);
  replies.send(session.id, std::move(welcome), fd_to_send);
}

// An arena that cannot be adopted is replaced by a new one: the trainer goes on, and `server` tells
// it why its snapshots in progress are lost.
Status Daemon::Impl::grant_arena(Session& session, const fb::HelloT& message,
                                 ckpt::base::UniqueFd fd, fb::WelcomeT& welcome, int* fd_to_send) {
  std::optional<Staging::Granted> granted;
  if (message.readopt) {
    auto adopted = fd.valid() ? staging->adopt(session.uid, std::move(fd), message.arena_bytes,
                                               message.slab_bytes)
                              : make_error(ErrorCode::kInvalidArgument, "no descriptor came along");
    if (adopted.ok()) {
      granted = *adopted;
      session.handing_back = true;
      welcome.adopted = true;
      ++counters.arenas_adopted;
    } else {
      welcome.server += ": " + adopted.error().message;
      spdlog::warn("session {}: its arena was not taken back: {}", session.id,
                   adopted.error().message);
    }
  }
  if (!granted) {
    CKPT_ASSIGN(granted, staging->create(session.uid, message.arena_bytes, message.slab_bytes));
    *fd_to_send = granted->fd;
  }
  session.arena = granted->arena;
  welcome.arena_bytes = granted->layout.arena_bytes();
  welcome.slab_bytes = granted->layout.slab_bytes;
  welcome.slab_count = granted->layout.slab_count;
  welcome.warm_bytes = granted->warm_bytes;
  return {};
}

void Daemon::Impl::warm_memory() {
  if (draining || !open_snapshots.empty() || disk_wanted()) return;
  if (!warm_next) warm_next = turn.now() + limits::kWarmPoolPause;
  if (turn.now() >= *warm_next && !staging->warm()) warm_next = turn.now() + limits::kWarmPoolPause;
}

// `may_replace`: it is this registration's turn as a change of history: it may remove a run.
void Daemon::Impl::register_units(Session& session, const fb::RegisterUnitsT& message,
                                  bool may_replace) {
  const auto fail = [&](const Error& error) {
    replies.refuse(session.id, message.request, about_run(session.run_name, error));
  };
  if (const Status named = ckpt::validate_name("run", session.run_name); !named.ok()) {
    return replies.refuse(session.id, message.request, named.error());
  }
  const Status metadata = check_metadata(message.metadata);
  if (!metadata.ok()) return fail(metadata.error());
  auto units = read_units(message);
  if (!units.ok()) return fail(units.error());
  const Status codecs = check_unit_codecs(message);
  if (!codecs.ok()) return fail(codecs.error());
  if (const Status flags = UnitFlags::check(message); !flags.ok()) return fail(flags.error());
  if (const auto creating = creating_runs.find(session.run_name); creating != creating_runs.end()) {
    if (!may_use(session, creating->second.uid)) {
      return fail(
          make_error(ErrorCode::kPermissionDenied, "it belongs to user {}", creating->second.uid));
    }
    const Status same = check_same_units(creating->second.units, *units);
    if (!same.ok()) return fail(same.error());
    creating->second.waiting.emplace_back(session.id, message.request);
    note_registration(session.run_name, message);
    return;
  }
  // A run that is in the journal and not yet in the catalog must not be created again.
  const auto run = history.read([&] { return history.catalog().run(session.run_name); });
  if (!run.ok()) {
    if (run.error().code != ErrorCode::kNotFound) return fail(run.error());
    return create_run(session, message, std::move(units).value(), nullptr);
  }
  if (const Status allowed = check_may(session, *run, ckpt::Right::kRead); !allowed.ok()) {
    return replies.refuse(session.id, message.request, allowed.error());
  }
  if (removing == run->id) {
    return fail(make_error(ErrorCode::kUnavailable, "it is being removed; try again"));
  }
  const auto known = history.catalog().units(run->id);
  if (!known.ok()) return fail(known.error());
  // Registered, but the daemon died before its units were written.
  if ((*known)->empty() && may_use(session, run->uid)) {
    return create_run(session, message, std::move(units).value(), nullptr);
  }
  Status same = check_same_units(**known, *units);
  if (never_committed(*run, session.uid) && (!same.ok() || differs(*run, message.metadata))) {
    if (!may_replace) {
      const Status queued = queue_registration(administrations, session.id, message);
      return queued.ok() ? next_administration() : fail(queued.error());
    }
    const Status unused = may_remove(*run);
    if (unused.ok()) return create_run(session, message, std::move(units).value(), &*run);
    same = still_in_use(same, unused);
  }
  if (!same.ok()) return fail(same.error());
  session.run = run->id;
  if (may(session, *run, ckpt::Right::kCommit)) note_registration(session.run_name, message);
  replies.done(session.id, message.request);
}

// Ends a `replaced` run; the new one gets its rules and grants.
void Daemon::Impl::create_run(Session& session, const fb::RegisterUnitsT& message,
                              std::vector<ckpt::UnitSpec> units, const RunInfo* replaced) {
  if (const Status no_auto = check_no_auto_codec(message); !no_auto.ok()) {
    const Error error = about_run(session.run_name, no_auto.error());
    return replies.refuse(session.id, message.request, error);
  }
  std::vector<fb::RecordT> records;
  const auto known = history.catalog().run(session.run_name);
  const bool is_new = !known.ok() || replaced != nullptr;
  const ckpt::RunId id = is_new ? next_run++ : known->id;
  if (replaced != nullptr) {
    records.push_back(removal_of_replaced(*replaced, turn.wall_clock_ns()));
    removing = replaced->id;
  }
  if (is_new) {
    fb::RunCreatedT created;
    created.run = id;
    created.name = session.run_name;
    created.uid = session.uid;
    created.time_ns = turn.wall_clock_ns();
    created.metadata = message.metadata;
    records.push_back(make_record(std::move(created)));
  }
  fb::UnitsRegisteredT registered;
  registered.run = id;
  registered.schema = ckpt::wire::to_fb(ckpt::schema_hash(units));
  for (size_t i = 0; i < units.size(); ++i) {
    registered.units.push_back(
        std::make_unique<fb::UnitT>(ckpt::wire::to_fb(units[i], static_cast<ckpt::UnitId>(i))));
  }
  records.push_back(make_record(std::move(registered)));
  if (replaced != nullptr) {
    const ckpt::KeepRules rules = history.catalog().keep_rules(replaced->id);
    for (fb::RecordT& kept : kept_settings(*replaced, rules, id, turn.wall_clock_ns())) {
      records.push_back(std::move(kept));
    }
  }
  note_registration(session.run_name, message);
  creating_runs[session.run_name] = {
      .uid = session.uid, .units = std::move(units), .waiting = {{session.id, message.request}}};
  struct Replaced {
    RunInfo run;
    fb::RegisterUnitsT registration;
  };
  const auto gone =
      replaced != nullptr ? std::make_shared<Replaced>(Replaced{*replaced, message}) : nullptr;
  history.record(std::move(records),
                 [this, name = session.run_name, id, gone](const Status& status) {
                   if (gone) {
                     removing.reset();
                     administering = false;
                     turn.defer([this] { next_administration(); });
                   }
                   if (gone && status.ok()) {
                     run_gone(gone->run);  // also drops the registration of its name
                     note_registration(name, gone->registration);
                   }
                   run_created(name, id, status);
                 });
}

void Daemon::Impl::run_created(const std::string& name, ckpt::RunId run, const Status& status) {
  const CreatingRun created = std::move(creating_runs.at(name));
  creating_runs.erase(name);
  if (!status.ok()) forget_registration(name);
  // A catalog that could not take the run will have it later: until then it is unusable.
  const auto taken =
      status.ok() ? history.read([&] { return history.catalog().run(run); }) : status.error();
  for (const auto& [id, request] : created.waiting) {
    Session* session = sessions.find(id);
    if (session == nullptr) continue;
    if (!taken.ok()) {
      replies.refuse(id, request, about_run(name, taken.error()));
      continue;
    }
    session->run = run;
    replies.done(id, request);
  }
}

void Daemon::Impl::disconnected(SessionId id, const std::string& reason) {
  const std::optional<Session> session = sessions.remove(id);
  if (!session) return;
  SessionWork work = std::move(session_work[id]);
  session_work.erase(id);
  holds.end_session(id);
  epochs.lost(id, reason);
  for (auto& [key, open] : open_snapshots) open.shares.erase(id);
  for (auto& [run, begins] : waiting_begins) {
    std::erase_if(begins, [id](const WaitingBegin& begin) { return begin.session == id; });
  }
  for (auto verify = verifies.begin(); verify != verifies.end();) {
    if (verify->second.session == id) {
      close_job(std::move(verify->second.job), {});
      verify = verifies.erase(verify);
    } else {
      ++verify;
    }
  }
  space.reader_gone();
  if (!session->arena) return;
  // The arena is released when no restore reads into it any more.
  const auto left = std::make_shared<size_t>(work.restores.size());
  const auto end_arena = [this, arena = *session->arena] { staging->session_ended(arena); };
  if (*left == 0) return end_arena();
  for (auto& [restore_id, restore] : work.restores) {
    close_job(std::move(restore.job), [left, end_arena] {
      if (--*left == 0) end_arena();
    });
  }
}

}  // namespace ckptd
