// The bytes of one fragment to what lies on disk of them, and back. Pure, and of bounded memory
// whatever the bytes are. A value of either class is for one thread at a time.
#pragma once

#include <memory>
#include <optional>

#include "formats/base/bytes.h"
#include "formats/base/result.h"
#include "formats/codec.h"

namespace ckptd {

using ckpt::ByteView;
using ckpt::Codec;
using ckpt::kEncodedFragmentBytesMax;
using ckpt::MutableByteView;
using ckpt::Result;
using ckpt::Status;

class ZstdEncoder {
 public:
  explicit ZstdEncoder(int level);
  ~ZstdEncoder();
  // At most kEncodedFragmentBytesMax bytes into `out`, which has room for as many. How many it is
  // now; nullopt: it would not get smaller by at least 1/32, and is better left as it is, or would
  // be more than `bytes_max`.
  std::optional<size_t> encode(Codec codec, ByteView raw, MutableByteView out,
                               size_t bytes_max = kEncodedFragmentBytesMax);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class ZstdDecoder {
 public:
  ZstdDecoder();
  ~ZstdDecoder();
  // Fills all of `raw`, at most kEncodedFragmentBytesMax bytes. kCorrupt: these bytes are not the
  // one frame of exactly so many.
  Status decode(Codec codec, ByteView encoded, MutableByteView raw);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What is encoded of a delta, and what is decoded of it to its bytes: the XOR with as many bytes.
void xor_bytes(MutableByteView bytes, ByteView with);

}  // namespace ckptd
