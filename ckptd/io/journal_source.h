// JournalSource: the journal of an open store, for readers beside its writer.
#pragma once

#include <cstdint>
#include <functional>

#include "ckptd/io/disk.h"

namespace ckptd {

struct JournalSource {
  FileId file = 0;
  std::function<uint64_t()> durable_end;  // the part before this offset is never written again
};

}  // namespace ckptd
