#include "client/ctl/link.h"

#include "client/ctl/say.h"
#include "formats/base/json_dump.h"
#include "formats/json_text.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

constexpr uint32_t kOpenTimeoutMs = 3'000;
constexpr uint64_t kArenaBytes = 32 << 20;  // two windows of 8 MiB, and what the daemon reserves
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

}  // namespace

ckpt::Error as_error(const ckpt::client::Error& error) {
  return {static_cast<ErrorCode>(error.status), error.message};
}

bool refuses_argument(const ckpt::Error& error, std::string_view name) {
  return error.code == ErrorCode::kInvalidArgument &&
         error.message == fmt::format("unknown argument {}", name);
}

Result<Link> Link::open(const Options& how) {
  ckpt::client::OpenOptions options;
  options.socket = how.socket;
  options.client_name = "ckptctl";
  options.control = true;
  options.timeout_ms = kOpenTimeoutMs;
  if (how.for_restore) {
    options.arena_bytes = kArenaBytes;
    options.slab_bytes = kSlabBytes;
  }
  auto session = ckpt::client::Session::open(options);
  if (!session) return as_error(session.error());
  return Link(how, std::move(session).value());
}

Result<ckpt::client::Session> Link::train(const std::string& run) const {
  ckpt::client::OpenOptions options;
  options.socket = options_.socket;
  options.run = run;
  options.client_name = "ckptctl";
  options.timeout_ms = kOpenTimeoutMs;
  options.arena_bytes = kArenaBytes;
  options.slab_bytes = kSlabBytes;
  auto session = ckpt::client::Session::open(options);
  if (!session) return as_error(session.error());
  return std::move(session).value();
}

Result<Answer> Link::ask(const std::string& verb, const Json& arguments, uint32_t timeout_ms) {
  auto reply = session_.query(verb, ckpt::base::dump_json(arguments), timeout_ms);
  if (!reply) return as_error(reply.error());
  // What a run's metadata holds comes some levels down in the answer.
  const Status json = ckpt::check_json(reply->json, 2 * ckpt::kJsonDepthMax);
  if (!json.ok()) {
    return make_error(ErrorCode::kVersionMismatch, "{}: the daemon's answer is {}", verb,
                      json.error().message);
  }
  Answer answer{Json::parse(reply->json, nullptr, false), reply->exit_code};
  if (answer.exit_code != 0 && answer.document.is_object() && answer.document.contains("error")) {
    const Json& error = answer.document["error"];
    return ckpt::Error{code_for_exit(answer.exit_code),
                       error.is_string() ? error.get<std::string>() : error.dump()};
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

Result<Json> Link::head(const std::string& verb, Json arguments) {
  arguments["page"] = "";
  arguments["page_bytes"] = 1;
  CKPT_ASSIGN(AnswerPage page, ask_page(verb, arguments, 60'000));
  return std::move(page.document);
}

Result<std::shared_ptr<ckpt::client::Hold>> Link::hold(const std::string& run, uint32_t lineage,
                                                       uint64_t step) {
  ckpt::client::HoldOptions options;
  options.run = run;
  options.lineage = lineage;
  options.step = step;
  auto hold = session_.hold(options);
  if (hold) return std::make_shared<ckpt::client::Hold>(std::move(hold).value());
  if (hold.error().status != CKPT_E_VERSION_MISMATCH) return as_error(hold.error());
  warn("{}: a prune can remove it meanwhile", hold.error().message);
  return std::shared_ptr<ckpt::client::Hold>();
}

Status Link::read(const std::string& run, uint32_t lineage, uint64_t step,
                  const std::vector<ckpt_range>& ranges) {
  ckpt::client::RestoreOptions options;
  options.run = run;
  options.lineage = lineage;
  options.step = step;
  options.exact = true;
  const auto restored = session_.restore(options, ranges);
  if (!restored) return as_error(restored.error());
  return ckpt::ok_status();
}

}  // namespace ckptctl
