// Link: ckptctl's session with the daemon. Questions and answers as JSON, and the bytes of views.
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
  int exit_code = 0;  // not 0 although there is a document: verify found errors
};

// What libckpt says, as we say it.
ckpt::Error as_error(const ckpt::client::Error& error);

// True if the error is the answer of a daemon that does not know this argument, because it is older
// than the argument. Daemon and client of neighbouring versions work together: whoever sends a new
// argument asks again without it.
bool refuses_argument(const ckpt::Error& error, std::string_view name);

class Link {
 public:
  struct Options {
    std::string socket;        // unix:PATH or PATH
    bool for_restore = false;  // with a small arena for read()
    uint64_t page_bytes = 0;   // of pages; 0: as the daemon has them
    // How long to wait for a daemon. 0: a few seconds for the connection, and a minute for one that
    // is gone later. Otherwise the verb has a time-out of its own, which alone ends its waits.
    uint32_t patience_ms = 0;
  };
  static Result<Link> open(const Options& options);

  // `{"error": ...}` comes back as an Error.
  Result<Answer> ask(const std::string& verb, const Json& arguments, uint32_t timeout_ms = 60'000);
  // An answer of any length, page by page: the verbs of ckptd/query that read the catalog, and
  // prune's and rm's dry runs. Any exit code but 0 is a failure.
  using VisitPage = std::function<Status(AnswerPage)>;
  Status pages(const std::string& verb, const Json& arguments, const VisitPage& visit,
               uint32_t timeout_ms = 60'000);
  // The same as one document.
  Result<Json> document(const std::string& verb, const Json& arguments,
                        uint32_t timeout_ms = 60'000);
  // What is asked, with the size of pages that this link was opened with.
  Json with_page_bytes(Json question) const;
  // Its first page alone, with one row if it has any: for what is no list.
  Result<Json> head(const std::string& verb, Json arguments, uint32_t timeout_ms = 60'000);

  // Keeps the view from being removed until it is released. Null, with a warning: the daemon is too
  // old for that.
  Result<std::shared_ptr<ckpt::client::Hold>> hold(const std::string& run, uint32_t lineage,
                                                   uint64_t step);

  // Why a wait was ended because no daemon listens any more; nullopt: none was. Calls fail with
  // another error then, which does not say it.
  const std::optional<ckpt::Error>& gave_up() const { return watch_->gave_up(); }

  const std::string& socket() const { return socket_; }

  // A session of a trainer of the run, with a small arena, on the same daemon.
  Result<ckpt::client::Session> train(const std::string& run);

  // Fills the ranges from the view, exactly as it says: a unit that is damaged there is an error.
  // At most a window's worth of them is worth asking for at once.
  Status read(const std::string& run, uint32_t lineage, uint64_t step,
              const std::vector<ckpt_range>& ranges);

 private:
  // For the waits of one session.
  struct Liveness {
    DaemonWatch* watch = nullptr;
    bool tells_of_opening = false;  // a wait of a few seconds ends with an error that says it all
    std::chrono::steady_clock::time_point opening;
    const ckpt_session* session = nullptr;  // null while it is being opened
  };
  explicit Link(Options options);
  Result<ckpt::client::Session> open_session(ckpt::client::OpenOptions options, bool with_arena);
  static int interrupted(void* liveness);
  Result<AnswerPage> ask_page(const std::string& verb, const Json& arguments, uint32_t timeout_ms);

  Options options_;
  std::string socket_;                  // its path
  std::unique_ptr<DaemonWatch> watch_;  // of all sessions; liveness_ points to it
  std::list<Liveness> liveness_;        // one for each session; declared before what uses it
  std::optional<ckpt::client::Session> session_;
};

// Restores are asked for in pieces of about this many bytes: the memory an export needs.
inline constexpr uint64_t kReadBytes = 64 << 20;

}  // namespace ckptctl
