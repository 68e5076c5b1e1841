#include "ckptd/codec/zstd_codec.h"

#include <zstd.h>

#include <algorithm>
#include <vector>

#include "formats/base/assert.h"
#include "kernels/byte_plane.h"
#include "kernels/delta.h"

namespace ckptd {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Number of whole elements; the rest has no planes.
int64_t element_count(ByteView raw, uint32_t planes) {
  return static_cast<int64_t>(raw.size() / planes);
}

}  // namespace

struct ZstdEncoder::Impl {
  struct Free {
    void operator()(ZSTD_CCtx* made) const { ZSTD_freeCCtx(made); }
  };
  std::unique_ptr<ZSTD_CCtx, Free> context{ZSTD_createCCtx()};
  std::vector<std::byte> planes;
};

ZstdEncoder::ZstdEncoder(int level) : impl_(std::make_unique<Impl>()) {
  CKPT_ASSERT_MSG(impl_->context != nullptr, "out of memory");
  const size_t set = ZSTD_CCtx_setParameter(impl_->context.get(), ZSTD_c_compressionLevel, level);
  CKPT_ASSERT_MSG(!ZSTD_isError(set), "no such level of zstd");
}

ZstdEncoder::~ZstdEncoder() = default;

std::optional<size_t> ZstdEncoder::encode(Codec codec, ByteView raw, MutableByteView out,
                                          size_t bytes_max) {
  CKPT_ASSERT(codec != Codec::kNone && raw.size() <= kEncodedFragmentBytesMax);
  CKPT_ASSERT(out.size() >= raw.size());
  const uint32_t planes = ckpt::plane_count(codec);
  ByteView from = raw;
  if (planes > 1) {
    impl_->planes.resize(raw.size());
    const int64_t count = element_count(raw, planes);
    ckpt::kernels::split_byte_planes(count, static_cast<int>(planes), raw.data(),
                                     impl_->planes.data());
    const auto done = static_cast<size_t>(count) * planes;
    std::copy(raw.begin() + static_cast<ptrdiff_t>(done), raw.end(),
              impl_->planes.begin() + static_cast<ptrdiff_t>(done));
    from = impl_->planes;
  }
  // zstd aborts as soon as it sees that the frame does not fit.
  const size_t most = std::min(raw.size() - raw.size() / 32, bytes_max);
  const size_t size = ZSTD_compress2(impl_->context.get(), out.data(), std::min(most, out.size()),
                                     from.data(), from.size());
  if (ZSTD_isError(size) || size >= raw.size()) return std::nullopt;
  return size;
}

struct ZstdDecoder::Impl {
  struct Free {
    void operator()(ZSTD_DCtx* made) const { ZSTD_freeDCtx(made); }
  };
  std::unique_ptr<ZSTD_DCtx, Free> context{ZSTD_createDCtx()};
  std::vector<std::byte> planes;
};

ZstdDecoder::ZstdDecoder() : impl_(std::make_unique<Impl>()) {
  CKPT_ASSERT_MSG(impl_->context != nullptr, "out of memory");
}

ZstdDecoder::~ZstdDecoder() = default;

Status ZstdDecoder::decode(Codec codec, ByteView encoded, MutableByteView raw) {
  CKPT_ASSERT(codec != Codec::kNone && raw.size() <= kEncodedFragmentBytesMax);
  if (ZSTD_findFrameCompressedSize(encoded.data(), encoded.size()) != encoded.size() ||
      ZSTD_getFrameContentSize(encoded.data(), encoded.size()) != raw.size()) {
    return make_error(ErrorCode::kCorrupt, "{} encoded bytes are no zstd frame of {} bytes",
                      encoded.size(), raw.size());
  }
  const uint32_t planes = ckpt::plane_count(codec);
  MutableByteView to = raw;
  if (planes > 1) {
    impl_->planes.resize(raw.size());
    to = impl_->planes;
  }
  const size_t size = ZSTD_decompressDCtx(impl_->context.get(), to.data(), to.size(),
                                          encoded.data(), encoded.size());
  if (ZSTD_isError(size) || size != raw.size()) {
    return make_error(ErrorCode::kCorrupt, "zstd: {}",
                      ZSTD_isError(size) ? ZSTD_getErrorName(size) : "the frame is shorter");
  }
  if (planes > 1) {
    const int64_t count = element_count(raw, planes);
    ckpt::kernels::join_byte_planes(count, static_cast<int>(planes), to.data(), raw.data());
    const auto done = static_cast<ptrdiff_t>(static_cast<size_t>(count) * planes);
    std::copy(to.begin() + done, to.end(), raw.begin() + done);
  }
  return {};
}

void xor_bytes(MutableByteView bytes, ByteView with) {
  CKPT_ASSERT(bytes.size() == with.size());
  ckpt::kernels::delta(static_cast<int64_t>(bytes.size()), bytes.data(), with.data(), bytes.data());
}

}  // namespace ckptd
