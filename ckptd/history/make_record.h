// make_record(): a journal record with the given body.
#pragma once

#include <utility>

#include "formats/journal.h"

namespace ckptd {

template <typename BodyT>
ckpt::fb::RecordT make_record(BodyT body) {
  ckpt::fb::RecordT record;
  record.body.Set(std::move(body));
  return record;
}

}  // namespace ckptd
