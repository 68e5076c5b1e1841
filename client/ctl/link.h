// Link: ckptctl's session with the daemon. Questions and answers as JSON, and the bytes of views.
#pragma once

#include <ckpt/client.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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
    std::string socket;        // empty: $CKPTD_SOCKET
    bool for_restore = false;  // with a small arena for read()
    uint64_t page_bytes = 0;   // of pages; 0: as the daemon has them
  };
  // The daemon must be there, or come within a few seconds.
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
  Result<Json> head(const std::string& verb, Json arguments);

  // Keeps the view from being removed until it is released. Null, with a warning: the daemon is too
  // old for that.
  Result<std::shared_ptr<ckpt::client::Hold>> hold(const std::string& run, uint32_t lineage,
                                                   uint64_t step);

  // A session of a trainer of the run, with a small arena, on the same daemon.
  Result<ckpt::client::Session> train(const std::string& run) const;

  // Fills the ranges from the view, exactly as it says: a unit that is damaged there is an error.
  // At most a window's worth of them is worth asking for at once.
  Status read(const std::string& run, uint32_t lineage, uint64_t step,
              const std::vector<ckpt_range>& ranges);

 private:
  Link(Options options, ckpt::client::Session session)
      : options_(std::move(options)), session_(std::move(session)) {}
  Result<AnswerPage> ask_page(const std::string& verb, const Json& arguments, uint32_t timeout_ms);

  Options options_;
  ckpt::client::Session session_;
};

// Restores are asked for in pieces of about this many bytes: the memory an export needs.
inline constexpr uint64_t kReadBytes = 64 << 20;

}  // namespace ckptctl
