#include "client/ctl/link.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "client/ctl/say.h"
#include "formats/base/json_dump.h"
#include "formats/base/parse.h"
#include "formats/base/unix_address.h"
#include "formats/json_text.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

// A ckptd that starts on a large store binds its socket first, and accepts connections later.
constexpr uint32_t kOpenTimeoutMs = 3'000;
constexpr std::chrono::milliseconds kOpeningReportAfter{1'000};
// Time for a ckptd that was just started to create its socket.
constexpr uint32_t kNoSocketTimeoutMs = 300;
constexpr uint32_t kHeartbeatMs = 500;
constexpr uint64_t kArenaBytes = 32 << 20;  // two windows of 8 MiB, and the daemon's reserve
constexpr uint64_t kSlabBytes = 8 << 20;

ErrorCode code_for_exit(int exit_code) {
  switch (exit_code) {
    case 2:
      return ErrorCode::kInvalidArgument;
    case 3:
      return ErrorCode::kNotFound;
    case 4:
      return ErrorCode::kCorrupt;
    default:
      return ErrorCode::kFailedPrecondition;
  }
}

// The exact cause in an answer `{"error": ..., "detail": N}`.
ckpt::ErrorDetail detail_of(const Json& answer) {
  const auto detail = answer.find("detail");
  if (detail == answer.end() || !detail->is_number_integer()) return ckpt::ErrorDetail::kNone;
  return static_cast<ckpt::ErrorDetail>(detail->get<int>());
}

// " tiny@20": the commit or run of a question; empty if there is none.
std::string about(const Json& arguments) {
  const auto target = arguments.find("target");
  if (target == arguments.end() || !target->is_string()) return {};
  return " " + target->get<std::string>();
}

bool has_socket(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0 || errno != ENOENT;
}

// A hanging ckptd has accepted the connection: "cannot connect" would be wrong.
ckpt::Error opening_error(ckpt::Error error, const std::string& socket, uint32_t waited_ms) {
  if (!error.message.ends_with(": ckptd did not answer in time")) return error;
  return make_error(ErrorCode::kDeadlineExceeded,
                    "ckptd at socket {} has taken the connection and not answered for {}: look at "
                    "its log, then repeat the command",
                    socket, ckpt::base::format_age(std::chrono::milliseconds(waited_ms)));
}

}  // namespace

ckpt::Error as_error(const ckpt::client::Error& error) {
  return {static_cast<ErrorCode>(error.status), error.message};
}

bool refuses_argument(const ckpt::Error& error, std::string_view name) {
  return error.code == ErrorCode::kInvalidArgument &&
         error.message == fmt::format("unknown argument {}", name);
}

Link::Link(Options options)
    : options_(std::move(options)),
      socket_(ckpt::base::unix_socket_path(options_.socket)),
      watch_(std::make_unique<DaemonWatch>(
          DaemonWatch::Options{.socket = socket_,
                               .expires = options_.patience_ms == 0,
                               .say = [](const std::string& line) { say("{}", line); },
                               .listens = socket_has_listener})) {}

void Link::report_opening(Liveness& of, std::chrono::milliseconds waited) {
  if (of.opening_reported || waited < kOpeningReportAfter) return;
  of.opening_reported = true;
  say("ckptd at socket {} is not ready; waiting at most {} for it", of.socket,
      ckpt::base::format_age(std::chrono::milliseconds(kOpenTimeoutMs)));
}

// libckpt calls this while a call of a session waits.
int Link::interrupted(void* liveness) {
  auto& of = *static_cast<Liveness*>(liveness);
  const bool opened = of.session != nullptr;
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - of.opening);
  if (!opened && !of.patient) {
    report_opening(of, waited);
    return 0;
  }
  const DaemonWatch::Seen seen{
      .session = &of,
      .silence_ms = opened ? ckpt_silence_ms(of.session) : static_cast<uint64_t>(waited.count()),
      .connected = opened && ckpt_fd(of.session) >= 0};
  return of.watch->poll(seen) ? 1 : 0;
}

Result<ckpt::client::Session> Link::open_session(ckpt::client::OpenOptions options,
                                                 bool with_arena) {
  const bool patient = options_.patience_ms > 0;
  Liveness& liveness =
      liveness_.emplace_back(Liveness{.watch = watch_.get(),
                                      .patient = patient,
                                      .socket = socket_,
                                      .opening = std::chrono::steady_clock::now()});
  options.socket = socket_;
  options.client_name = "ckptctl";
  options.timeout_ms =
      patient ? options_.patience_ms : (has_socket(socket_) ? kOpenTimeoutMs : kNoSocketTimeoutMs);
  options.heartbeat_ms = kHeartbeatMs;
  options.interrupted = interrupted;
  options.interrupted_context = &liveness;
  options.waiting = [](const std::string& why) { say("waiting for room: {}", why); };
  if (with_arena) {
    options.arena_bytes = kArenaBytes;
    options.slab_bytes = kSlabBytes;
  }
  auto session = ckpt::client::Session::open(options);
  if (!session && !patient && options.timeout_ms == kNoSocketTimeoutMs && has_socket(socket_)) {
    options.timeout_ms = kOpenTimeoutMs;
    session = ckpt::client::Session::open(options);
  }
  if (!session) return opening_error(as_error(session.error()), socket_, options.timeout_ms);
  liveness.session = session->handle();
  return std::move(session).value();
}

Result<Link> Link::open(const Options& how) {
  Link link(how);
  if (link.socket_.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "no socket given: pass --socket unix:PATH or set CKPTD_SOCKET");
  }
  ckpt::client::OpenOptions options;
  options.control = true;
  CKPT_ASSIGN(link.session_, link.open_session(std::move(options), how.for_restore));
  return link;
}

Result<ckpt::client::Session> Link::train(const std::string& run) {
  ckpt::client::OpenOptions options;
  options.run = run;
  return open_session(std::move(options), /*with_arena=*/true);
}

Result<Answer> Link::ask(const std::string& verb, const Json& arguments, uint32_t timeout_ms) {
  auto reply = session_->query(verb, ckpt::base::dump_json(arguments), timeout_ms);
  if (!reply && reply.error().status == CKPT_E_DEADLINE_EXCEEDED) {
    return make_error(ErrorCode::kDeadlineExceeded,
                      "{}{}: ckptd at socket {} took the question and has not answered within "
                      "{}; look at its log, or try again",
                      verb, about(arguments), socket_,
                      ckpt::base::format_age(std::chrono::milliseconds(timeout_ms)));
  }
  if (!reply) return as_error(reply.error());
  // The answer may nest a run's metadata some levels down: allow twice the metadata's depth.
  const Status json = ckpt::check_json(reply->json, 2 * ckpt::kJsonDepthMax);
  if (!json.ok()) {
    return make_error(ErrorCode::kVersionMismatch, "{}: the daemon's answer is {}", verb,
                      json.error().message);
  }
  Answer answer{Json::parse(reply->json, nullptr, false), reply->exit_code};
  if (answer.exit_code != 0 && answer.document.is_object() && answer.document.contains("error")) {
    const Json& error = answer.document["error"];
    return ckpt::Error{code_for_exit(answer.exit_code),
                       error.is_string() ? error.get<std::string>() : error.dump(),
                       detail_of(answer.document)};
  }
  return answer;
}

Result<AnswerPage> Link::ask_page(const std::string& verb, const Json& arguments,
                                  uint32_t timeout_ms) {
  CKPT_ASSIGN(Answer answer, ask(verb, arguments, timeout_ms));
  if (answer.exit_code == 0) return parse_page(verb, std::move(answer.document));
  return make_error(code_for_exit(answer.exit_code), "{}: {}", verb, answer.document.dump());
}

Json Link::with_page_bytes(Json question) const {
  if (options_.page_bytes > 0) question["page_bytes"] = options_.page_bytes;
  return question;
}

Status Link::pages(const std::string& verb, const Json& arguments, const VisitPage& visit,
                   uint32_t timeout_ms) {
  Json question = with_page_bytes(arguments);
  question["page"] = "";
  while (true) {
    CKPT_ASSIGN(AnswerPage page, ask_page(verb, question, timeout_ms));
    const std::string next = page.next;
    if (!next.empty() && question["page"] == next) {
      return make_error(ErrorCode::kVersionMismatch,
                        "{}: a page of the daemon's answer leads to itself", verb);
    }
    CKPT_TRY(visit(std::move(page)));
    if (next.empty()) return ckpt::ok_status();
    question["page"] = next;
  }
}

Result<Json> Link::document(const std::string& verb, const Json& arguments, uint32_t timeout_ms) {
  PageJoiner whole(verb);
  CKPT_TRY(pages(
      verb, arguments, [&](AnswerPage page) { return whole.add(std::move(page)); }, timeout_ms));
  return std::move(whole).document();
}

Result<Json> Link::head(const std::string& verb, Json arguments, uint32_t timeout_ms) {
  arguments["page"] = "";
  arguments["page_bytes"] = 1;
  CKPT_ASSIGN(AnswerPage page, ask_page(verb, arguments, timeout_ms));
  return std::move(page.document);
}

Result<std::shared_ptr<ckpt::client::Hold>> Link::hold(const std::string& run, uint32_t lineage,
                                                       uint64_t step) {
  ckpt::client::HoldOptions options;
  options.run = run;
  options.lineage = lineage;
  options.step = step;
  auto hold = session_->hold(options);
  if (hold) return std::make_shared<ckpt::client::Hold>(std::move(hold).value());
  if (hold.error().status != CKPT_E_VERSION_MISMATCH) return as_error(hold.error());
  warn("{}: a prune can remove it meanwhile", hold.error().message);
  return std::shared_ptr<ckpt::client::Hold>();
}

Result<std::vector<ckpt::client::Blob>> Link::blobs(const std::string& run, uint32_t lineage,
                                                    uint64_t step) {
  ckpt::client::RestoreOptions options;
  options.run = run;
  options.lineage = lineage;
  options.step = step;
  auto found = session_->blobs(options);
  if (!found) return as_error(found.error());
  return std::move(found->blobs);
}

Status Link::read(const std::string& run, uint32_t lineage, uint64_t step,
                  const std::vector<ckpt_range>& ranges) {
  ckpt::client::RestoreOptions options;
  options.run = run;
  options.lineage = lineage;
  options.step = step;
  options.exact = true;
  const auto restored = session_->restore(options, ranges);
  if (!restored) return as_error(restored.error());
  return ckpt::ok_status();
}

}  // namespace ckptctl
