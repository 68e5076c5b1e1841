// Link: ckptctl's session with the daemon. Questions and answers as JSON, and the bytes of views.
#pragma once

#include <ckpt/client.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/base/result.h"

namespace ckptctl {

using ckpt::Result;
using ckpt::Status;
// Ordered: a document is printed as the daemon wrote it.
using Json = nlohmann::ordered_json;

struct Answer {
  Json document;
  int exit_code = 0;  // not 0 although there is a document: verify found errors
};

// What libckpt says, as we say it.
ckpt::Error as_error(const ckpt::client::Error& error);

class Link {
 public:
  // `socket` empty: $CKPTD_SOCKET. `for_restore`: with a small arena for read(). The daemon must be
  // there, or come within a few seconds.
  static Result<Link> open(const std::string& socket, bool for_restore = false);

  // `{"error": ...}` comes back as an Error.
  Result<Answer> ask(const std::string& verb, const Json& arguments, uint32_t timeout_ms = 60'000);
  // As ask(), where any exit code but 0 is a failure.
  Result<Json> document(const std::string& verb, const Json& arguments,
                        uint32_t timeout_ms = 60'000);

  // A session of a trainer of the run, with a small arena, on the same daemon.
  Result<ckpt::client::Session> train(const std::string& run) const;

  // Fills the ranges from the view, exactly as it says: a unit that is damaged there is an error.
  // At most a window's worth of them is worth asking for at once.
  Status read(const std::string& run, uint32_t lineage, uint64_t step,
              const std::vector<ckpt_range>& ranges);

 private:
  Link(std::string socket, ckpt::client::Session session)
      : socket_(std::move(socket)), session_(std::move(session)) {}
  std::string socket_;
  ckpt::client::Session session_;
};

// Restores are asked for in pieces of about this many bytes: the memory an export needs.
inline constexpr uint64_t kReadBytes = 64 << 20;

}  // namespace ckptctl
