// Link: ckptctl's session with the daemon, for JSON requests and the bytes of views.
#pragma once

#include <chrono>
#include <ckpt/client.hpp>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/ctl/daemon_watch.h"
#include "client/ctl/pages.h"
#include "formats/base/result.h"

namespace ckptctl {

using ckpt::Result;
using ckpt::Status;

struct Answer {
  Json document;
  int exit_code = 0;  // may be nonzero with a document: verify found errors
};

// Converts an error of libckpt.
ckpt::Error as_error(const ckpt::client::Error& error);

// True if the error means that the daemon does not know this argument, because the daemon is older.
// Daemon and client of neighbouring versions work together: the caller of a new argument asks again
// without it.
bool refuses_argument(const ckpt::Error& error, std::string_view name);

class Link {
 public:
  struct Options {
    std::string socket;        // unix:PATH or PATH
    bool for_restore = false;  // adds a small arena for read()
    uint64_t page_bytes = 0;   // of pages; 0: the daemon's default
    // Time to wait for a daemon. 0: a few seconds for the connection, a minute if the daemon is
    // lost later. Otherwise the verb has its own timeout, which alone ends its waits.
    uint32_t patience_ms = 0;
  };
  static Result<Link> open(const Options& options);

  // Returns an answer `{"error": ...}` as an Error.
  Result<Answer> ask(const std::string& verb, const Json& arguments, uint32_t timeout_ms = 60'000);
  // Visits an answer of any length page by page: verbs of ckptd/query that read the catalog, and
  // dry runs of prune and rm. Any nonzero exit code is a failure.
  using VisitPage = std::function<Status(AnswerPage)>;
  Status pages(const std::string& verb, const Json& arguments, const VisitPage& visit,
               uint32_t timeout_ms = 60'000);
  // Same, as one document.
  Result<Json> document(const std::string& verb, const Json& arguments,
                        uint32_t timeout_ms = 60'000);
  // Adds this link's page size to the question.
  Json with_page_bytes(Json question) const;
  // Asks for the first page only, with at most one row: for answers that are no list.
  Result<Json> head(const std::string& verb, Json arguments, uint32_t timeout_ms = 60'000);

  // Protects the view from removal until the hold is released. Null, with a warning, if the daemon
  // is too old for holds.
  Result<std::shared_ptr<ckpt::client::Hold>> hold(const std::string& run, uint32_t lineage,
                                                   uint64_t step);

  // Why waits ended because no daemon listens; nullopt if no wait ended for this reason. The calls
  // then fail with another error, which lacks the reason.
  const std::optional<ckpt::Error>& expired() const { return watch_->expired(); }

  const std::string& socket() const { return socket_; }

  // A trainer's session of the run, with a small arena, on the same daemon.
  Result<ckpt::client::Session> train(const std::string& run);

  // The blobs of a commit. `unit` of a blob names it for read().
  Result<std::vector<ckpt::client::Blob>> blobs(const std::string& run, uint32_t lineage,
                                                uint64_t step);

  // Fills the ranges from the view, exactly: a unit that is damaged there is an error. One call
  // should request at most kReadBytes.
  Status read(const std::string& run, uint32_t lineage, uint64_t step,
              const std::vector<ckpt_range>& ranges);

 private:
  // State of the waits of one session.
  struct Liveness {
    DaemonWatch* watch = nullptr;
    bool patient = false;  // the verb has its own timeout, and the watch reports its opening
    std::string socket = {};
    std::chrono::steady_clock::time_point opening;
    bool opening_reported = false;
    const ckpt_session* session = nullptr;  // null while it is being opened
  };
  explicit Link(Options options);
  Result<ckpt::client::Session> open_session(ckpt::client::OpenOptions options, bool with_arena);
  static int interrupted(void* liveness);
  static void report_opening(Liveness& of, std::chrono::milliseconds waited);
  Result<AnswerPage> ask_page(const std::string& verb, const Json& arguments, uint32_t timeout_ms);

  Options options_;
  std::string socket_;                  // the socket's path
  std::unique_ptr<DaemonWatch> watch_;  // of all sessions; liveness_ points to it
  std::list<Liveness> liveness_;        // one per session; declared before its users
  std::optional<ckpt::client::Session> session_;
};

// Size of the pieces of a restore: the memory an export needs.
inline constexpr uint64_t kReadBytes = 64 << 20;

}  // namespace ckptctl
