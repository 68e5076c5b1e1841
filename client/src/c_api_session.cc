#include <ckpt/ckpt_direct.h>
#include <ckpt/ckpt_liveness.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "client/src/c_api.h"
#include "client/src/c_api_units.h"
#include "formats/base/unix_address.h"

namespace ckpt::lib {
namespace {

constexpr uint32_t kOpenTimeoutMs = 10'000;
constexpr uint32_t kJoinTimeoutMs = 60'000;

std::string text_or_env(const char* text, const char* variable) {
  if (text != nullptr) return text;
  const char* value = std::getenv(variable);
  return value != nullptr ? value : "";
}

// The error if neither `text` nor the environment's `variable` gives `what`.
ckpt::Error unnamed(const char* what, const char* text, const char* variable, const char* value) {
  if (text != nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "the {} of the session is an empty name", what);
  }
  const char* state = std::getenv(variable) == nullptr ? "not set" : "empty";
  return make_error(ErrorCode::kInvalidArgument,
                    "no {}: {} is {}; set it to {}, or name the {} when the session is opened",
                    what, variable, state, value, what);
}

Result<Session::Options> session_options(const ckpt_open_options& from) {
  Session::Options options;
  options.socket = base::unix_socket_path(text_or_env(from.socket, "CKPTD_SOCKET"));
  if (options.socket.empty()) {
    return unnamed("socket", from.socket, "CKPTD_SOCKET", "unix:PATH");
  }
  options.run = text_or_env(from.run, "CKPTD_RUN");
  options.control = from.control != 0;
  if (!options.control && options.run.empty()) {
    return unnamed("run", from.run, "CKPTD_RUN", "the run's name");
  }
  if (!options.control || !options.run.empty()) CKPT_TRY(validate_name("run", options.run));
  if (from.client_name != nullptr) options.client_name = from.client_name;
  options.arena_bytes = from.arena_bytes;
  options.slab_bytes = from.slab_bytes;
  // Copy as an int: a C caller may have stored any number, which must not be read as an enum.
  int alarms = 0;
  static_assert(sizeof alarms == sizeof from.alarms);
  std::memcpy(&alarms, &from.alarms, sizeof alarms);
  if (alarms < CKPT_ALARMS_DEFAULT || alarms > CKPT_ALARMS_REFUSE) {
    return make_error(ErrorCode::kInvalidArgument, "alarms {}: no such policy", alarms);
  }
  options.alarms = static_cast<fb::AlarmPolicy>(alarms);
  const ckpt_liveness liveness = copy_options(from.liveness);
  options.heartbeat_ms = liveness.heartbeat_ms;
  if (liveness.interrupted != nullptr) {
    options.interrupted = [ask = liveness.interrupted, context = liveness.interrupted_context] {
      return ask(context) != 0;
    };
  }
  if (liveness.waiting != nullptr) {
    options.waiting = [notify = liveness.waiting, context = liveness.waiting_context](
                          const std::string& why) { notify(context, why.c_str()); };
  }
  return options;
}

Result<std::unique_ptr<Session>> open_session(const ckpt_open_options* from) {
  const ckpt_open_options raw = copy_options(from);
  CKPT_ASSIGN(Session::Options options, session_options(raw));
  const auto deadline = Deadline::after_ms(or_default(raw.timeout_ms, kOpenTimeoutMs));
  return Session::open(std::move(options), deadline);
}

}  // namespace
}  // namespace ckpt::lib

using namespace ckpt;       // NOLINT(google-build-using-namespace): this file is the ABI's other
using namespace ckpt::lib;  // NOLINT(google-build-using-namespace): side, nothing includes it

uint32_t ckpt_version(void) { return (CKPT_VERSION_MAJOR << 16) | CKPT_VERSION_MINOR; }

const char* ckpt_status_name(ckpt_status status) {
  if (status == CKPT_OK) return "ok";
  if (status < CKPT_OK || status > CKPT_E_FAILED_PRECONDITION) return "unknown";
  return error_code_name(static_cast<ErrorCode>(status)).data();
}

ckpt_status ckpt_open(const ckpt_open_options* options, ckpt_session** session, char* error,
                      size_t error_bytes) {
  if (session == nullptr) return CKPT_E_INVALID_ARGUMENT;
  *session = nullptr;
  int* const detail = copy_options(options).error_detail;
  if (detail != nullptr) *detail = CKPT_DETAIL_NONE;
  const auto fail = [&](ErrorCode code, const std::string& message) {
    if (error != nullptr && error_bytes > 0) {
      std::snprintf(error, error_bytes, "%s", message.c_str());
    }
    return static_cast<ckpt_status>(code);
  };
  try {
    Result<std::unique_ptr<Session>> opened = open_session(options);
    if (!opened.ok()) {
      if (detail != nullptr) *detail = static_cast<int>(opened.error().detail);
      return fail(opened.error().code, opened.error().message);
    }
    *session = new ckpt_session{std::move(opened).value(), {}};
    return CKPT_OK;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kResourceExhausted, "out of memory");
  }
}

void ckpt_close(ckpt_session* session) { delete session; }

const char* ckpt_session_error(const ckpt_session* session) {
  return session->session->error_text.c_str();
}

int ckpt_session_error_detail(const ckpt_session* session) {
  return static_cast<int>(session->session->error_detail);
}

void* ckpt_arena(const ckpt_session* session, uint64_t* bytes) {
  const ArenaMapping* arena = session->session->arena().pin();
  if (bytes != nullptr) *bytes = arena != nullptr ? arena->bytes().size() : 0;
  return arena != nullptr ? arena->bytes().data() : nullptr;
}

uint64_t ckpt_slab_bytes(const ckpt_session* session) {
  const ArenaMapping* arena = session->session->arena().mapping();
  return arena != nullptr ? arena->layout().slab_bytes : 0;
}

int ckpt_fd(const ckpt_session* session) { return session->session->fd(); }

uint64_t ckpt_silence_ms(const ckpt_session* session) { return session->session->silence_ms(); }

ckpt_status ckpt_poll(ckpt_session* session, uint32_t timeout_ms) {
  return run_call(*session->session, [&]() -> Status {
    session->session->pump(Deadline::after_ms(timeout_ms));
    return ok_status();
  });
}

ckpt_status ckpt_register_units(ckpt_session* session, const ckpt_unit* units, size_t count,
                                const char* metadata, uint32_t timeout_ms) {
  ckpt_register_options options = CKPT_INIT(ckpt_register_options);
  options.metadata = metadata;
  options.timeout_ms = timeout_ms;
  return ckpt_register_units_with(session, units, count, &options);
}

ckpt_status ckpt_register_units_with(ckpt_session* session, const ckpt_unit* units, size_t count,
                                     const ckpt_register_options* options) {
  return run_call(*session->session, [&]() -> Status {
    if (units == nullptr && count > 0) return missing("units");
    if (options == nullptr) return missing("options");
    const ckpt_register_options raw = copy_options(options);
    std::vector<UnitSpec> specs;
    specs.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      CKPT_ASSIGN(UnitSpec spec, unit_spec(units[i]));
      specs.push_back(std::move(spec));
    }
    std::vector<fb::UnitCodec> codecs;
    codecs.reserve(raw.codecs == nullptr ? 0 : count);
    for (size_t i = 0; raw.codecs != nullptr && i < count; ++i) {
      CKPT_ASSIGN(const fb::UnitCodec codec, unit_codec(specs[i], &raw.codecs[i]));
      codecs.push_back(codec);
    }
    std::vector<uint32_t> flags;
    if (raw.flags != nullptr) flags.assign(raw.flags, raw.flags + count);
    for (size_t i = 0; i < flags.size(); ++i) CKPT_TRY(check_flags(specs[i], flags[i]));
    return session->session->register_units(
        {.units = std::move(specs),
         .codecs = std::move(codecs),
         .flags = std::move(flags),
         .metadata = raw.metadata != nullptr ? raw.metadata : ""},
        Deadline::after_ms(raw.timeout_ms));
  });
}

ckpt_status ckpt_join(ckpt_session* session, const ckpt_join_options* options, ckpt_epoch* epoch) {
  return run_call(*session->session, [&]() -> Status {
    if (options == nullptr || epoch == nullptr) return missing("options or epoch");
    const ckpt_join_options raw = copy_options(options);
    JoinOptions join;
    join.rank = raw.rank;
    join.size = raw.size;
    join.resume = static_cast<fb::ResumeMode>(raw.resume);
    join.resume_lineage = raw.resume_lineage;
    join.resume_step = raw.resume_step;
    join.elastic = raw.elastic != 0;
    join.member = raw.member;
    join.grace_ms = raw.grace_ms;
    join.job = raw.job;
    join.timeout_ms = or_default(raw.timeout_ms, kJoinTimeoutMs);
    if (raw.waiting != nullptr) {
      join.waiting = [&raw](const std::string& why) { raw.waiting(raw.waiting_user, why.c_str()); };
    }
    CKPT_TRY(join_group(*session->session, join));
    const fb::EpochStartedT& started = session->session->group().epoch();
    ckpt_epoch out{};
    out.epoch = started.epoch;
    out.rank = started.rank;
    out.size = started.size;
    out.lineage = started.lineage;
    out.has_resume = started.has_resume ? 1 : 0;
    out.resume_lineage = started.resume_lineage;
    out.resume_step = started.resume_step;
    out.goes_on = started.goes_on ? 1 : 0;
    out.members = started.members.empty() ? nullptr : started.members.data();
    out.previous_ranks = started.goes_on ? started.previous_ranks.data() : nullptr;
    out.previous_size = started.previous_size;
    copy_out(out, epoch);
    return ok_status();
  });
}

int ckpt_epoch_ended(const ckpt_session* session, uint32_t* ranks, size_t capacity, size_t* count) {
  const Group& group = session->session->group();
  const bool ended = group.ended();
  const size_t lost = ended ? group.lost().size() : 0;
  if (count != nullptr) *count = lost;
  if (ranks != nullptr) std::copy_n(group.lost().begin(), std::min(lost, capacity), ranks);
  return ended ? 1 : 0;
}

uint32_t ckpt_joiners_waiting(const ckpt_session* session) {
  return session->session->group().joiners();
}

ckpt_status ckpt_leave(ckpt_session* session, uint32_t timeout_ms) {
  return run_call(*session->session,
                  [&] { return leave_group(*session->session, Deadline::after_ms(timeout_ms)); });
}

ckpt_status ckpt_kv_set(ckpt_session* session, const char* key, const void* value, size_t bytes) {
  return run_call(*session->session, [&]() -> Status {
    if (key == nullptr || (value == nullptr && bytes > 0)) return missing("key or value");
    const auto* begin = static_cast<const uint8_t*>(value);
    return kv_set(*session->session, key, std::vector<uint8_t>(begin, begin + bytes));
  });
}

ckpt_status ckpt_kv_get(ckpt_session* session, const char* key, void* value, size_t* bytes,
                        uint32_t timeout_ms) {
  return run_call(*session->session, [&]() -> Status {
    if (key == nullptr || bytes == nullptr) return missing("key or bytes");
    CKPT_ASSIGN(const std::vector<uint8_t> found,
                kv_get(*session->session, key, Deadline::after_ms(timeout_ms)));
    const size_t capacity = std::exchange(*bytes, found.size());
    if (found.size() > capacity) {
      return make_error(ErrorCode::kResourceExhausted, "key {}: {} bytes do not fit into {}", key,
                        found.size(), capacity);
    }
    if (!found.empty()) std::memcpy(value, found.data(), found.size());
    return ok_status();
  });
}

ckpt_status ckpt_query(ckpt_session* session, const char* verb, const char* arguments,
                       uint32_t timeout_ms, char** json, int* exit_code) {
  return run_call(*session->session, [&]() -> Status {
    if (verb == nullptr || json == nullptr) return missing("verb or json");
    *json = nullptr;
    fb::QueryT body;
    body.verb = verb;
    body.args = arguments != nullptr ? arguments : "{}";
    CKPT_ASSIGN(fb::MessageT reply,
                session->session->call(body, {Deadline::after_ms(timeout_ms), verb, {}}));
    const fb::QueryReplyT* answer = reply.body.AsQueryReply();
    if (answer == nullptr) {
      return make_error(ErrorCode::kCorrupt, "{}: the daemon answered with something else", verb);
    }
    *json = ::strdup(answer->json.c_str());
    if (*json == nullptr) return make_error(ErrorCode::kResourceExhausted, "out of memory");
    if (exit_code != nullptr) *exit_code = answer->exit_code;
    return ok_status();
  });
}

void ckpt_free(void* memory) { std::free(memory); }
