// Decodes the stored bytes of a fragment into its bytes as they were staged. Pure.
#pragma once

#include <vector>

#include "ckptd/catalog/catalog.h"
#include "ckptd/codec/zstd_codec.h"

namespace ckptd {

// `stored`: all stored bytes of the place; `base`: for a delta, the bytes of its base. Checks the
// checksums before and after decoding: kCorrupt says which one failed.
Status decode_place(ZstdDecoder& decoder, const FragmentPlace& place, ByteView stored,
                    ByteView base, std::vector<std::byte>& raw);

}  // namespace ckptd
