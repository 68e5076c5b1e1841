// What lies on disk of a piece of a unit, to its bytes as they were staged. Pure.
#pragma once

#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/codec/zstd_codec.h"

namespace ckptd {

// `stored`: all that lies on disk of the place; `base`: of a delta the bytes of its base. Nothing
// is believed before it was checked, nor after: kCorrupt says what does not hold.
Status decode_place(ZstdDecoder& decoder, const FragmentPlace& place, ByteView stored,
                    ByteView base, std::vector<std::byte>& raw);

}  // namespace ckptd
