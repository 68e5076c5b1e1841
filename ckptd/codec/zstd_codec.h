// Encodes the bytes of one fragment, and decodes them. Pure, with bounded memory for any input. An
// object of either class is for one thread at a time.
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
  // Encodes at most kEncodedFragmentBytesMax bytes into `out`, which has room for as many. Returns
  // the encoded size; nullopt: the size would shrink by less than 1/32, so raw is better, or would
  // exceed `bytes_max`.
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
  // Fills all of `raw`, at most kEncodedFragmentBytesMax bytes. kCorrupt: `encoded` is not one
  // frame of exactly this raw size.
  Status decode(Codec codec, ByteView encoded, MutableByteView raw);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Encodes and decodes a delta: XOR with an equal number of bytes.
void xor_bytes(MutableByteView bytes, ByteView with);

}  // namespace ckptd
