// Reads the blobs of a commit, by name and rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/src/session.h"
#include "formats/base/bytes.h"

namespace ckpt::lib {

// Selects a commit: the newest one if `latest`, else by tag, else by step.
struct BlobView {
  std::string run;
  LineageId lineage = 0;
  Step step = 0;
  bool latest = false;
  std::string tag;
};

struct BlobEntry {
  UnitId id = 0;
  std::string name;
  Rank rank = 0;
  bool global = false;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
};

struct BlobList {
  LineageId lineage = 0;
  Step step = 0;
  std::vector<BlobEntry> entries;  // ascending by id
};

// Error if the daemon is known to be older than blobs. `what` begins the message.
Status check_blobs_known(const Session& session, const std::string& what);

Result<BlobList> list_blobs(Session& session, const BlobView& view, const Deadline& deadline);

// rank: nullopt for a global blob. kNotFound names the ranks that have a blob of this name.
Result<BlobEntry> find_blob(const BlobList& list, const std::string& run, const std::string& name,
                            std::optional<Rank> rank);

// Fills `data`, whose size is that of the blob. timeout_ms: time without any progress.
Status read_blob(Session& session, const std::string& run, const BlobList& list,
                 const BlobEntry& blob, MutableByteView data, uint32_t timeout_ms);

}  // namespace ckpt::lib
