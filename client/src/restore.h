// Restore: ranges of a view, copied out of windows of the arena, each piece checked.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "client/src/session.h"
#include "formats/plan.h"

namespace ckpt::lib {

struct RestoreOptions {
  std::string run;
  LineageId lineage = 0;
  Step step = 0;
  bool latest = false;
  std::string tag;
  bool exact = false;
  uint32_t timeout_ms = 0;  // without any progress
};

struct RestoreRange {
  UnitRange range;
  std::byte* data = nullptr;
};

struct RestoredRange {
  LineageId version_lineage = 0;
  Step version_step = 0;
  std::string note;
  uint64_t bytes_memory = 0;
  uint64_t bytes_disk = 0;
};

// What the session hears about the one restore in progress.
class RestoreInbox {
 public:
  explicit RestoreInbox(Session& session) : session_(session) { session_.set_restore(this); }
  RestoreInbox(const RestoreInbox&) = delete;
  RestoreInbox& operator=(const RestoreInbox&) = delete;
  ~RestoreInbox() { session_.set_restore(nullptr); }

  void take(fb::RestoreWindowT window) { windows_.push_back(std::move(window)); }
  bool take_error(const fb::ErrorReplyT& error);

  void opened(uint64_t request) { request_ = request; }
  std::optional<fb::RestoreWindowT> next(uint64_t restore);
  const std::optional<Error>& failure() const { return failure_; }

 private:
  Session& session_;
  uint64_t request_ = 0;
  std::deque<fb::RestoreWindowT> windows_;
  std::optional<Error> failure_;
};

// Fills every range. When the daemon is lost half-way it starts over with the next one. After an
// error the ranges' bytes are undefined.
Result<std::vector<RestoredRange>> restore_read(Session& session, const RestoreOptions& options,
                                                const std::vector<RestoreRange>& ranges);

}  // namespace ckpt::lib
