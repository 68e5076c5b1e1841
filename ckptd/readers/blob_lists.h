// BlobLists: answers ListBlobs. Loop thread.
#pragma once

#include <functional>
#include <optional>

#include "ckptd/history/history.h"
#include "ckptd/readers/restores.h"
#include "ckptd/sessions/replies.h"
#include "ckptd/sessions/session.h"
#include "formats/wire/wire_generated.h"

namespace ckptd {

class BlobLists {
 public:
  struct Needs {
    History& history;
    const Replies& replies;
    std::function<std::optional<EarlierSnapshots>(ckpt::SessionId)> earlier_snapshots;
  };
  explicit BlobLists(Needs needs) : needs_(std::move(needs)) {}

  void list(const Session& session, const ckpt::fb::ListBlobsT& message);

 private:
  Result<ckpt::fb::BlobsListedT> find(const Session& session,
                                      const ckpt::fb::ListBlobsT& message) const;

  const Needs needs_;
};

}  // namespace ckptd
