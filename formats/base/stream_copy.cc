#include "formats/base/stream_copy.h"

#include <cstring>

#include "formats/base/assert.h"
#include "formats/base/crc32c.h"
#include "formats/base/crc32c_fold.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace ckpt::base {

#ifdef __SSE2__

namespace {

// Block size without folding: small enough that its checksum is computed while its stores are
// still in flight and its bytes are in the L1 cache.
constexpr size_t kChecksummedBytes = 512;
constexpr size_t kLineBytes = crc32c_fold::kLineBytes;
constexpr size_t kStoreBytes = sizeof(__m128i);
// Prefetch distance. The hardware prefetcher stops at page boundaries, and stores that bypass the
// caches give it fewer hints.
constexpr size_t kFetchedAheadBytes = 1024;
// Below this size, waiting for the last stores costs more than streaming saves.
constexpr size_t kStreamedBytesMin = 4096;

// Copies whole cache lines; `to` is aligned to a line.
void stream(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kLineBytes) {
    __m128i line[kLineBytes / kStoreBytes];
    // May point beyond the end: a prefetch hint never faults.
    _mm_prefetch(from + at + kFetchedAheadBytes, _MM_HINT_T0);
    std::memcpy(line, from + at, kLineBytes);
    for (size_t i = 0; i < kLineBytes / kStoreBytes; ++i) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at) + i, line[i]);
    }
  }
}

// Copies whole pieces and updates `crc`; leaves the rest to the caller. Returns the bytes copied.
size_t stream_pieces(std::byte* to, ByteView from, uint32_t* crc) {
  if (crc32c_fold::supported()) {
    const size_t whole = from.size() / crc32c_fold::kStepBytes * crc32c_fold::kStepBytes;
    *crc = crc32c_fold::fold_stream(to, from.first(whole), *crc);
    return whole;
  }
  size_t done = 0;
  for (; from.size() - done >= kChecksummedBytes; done += kChecksummedBytes) {
    stream(to + done, from.data() + done, kChecksummedBytes);
    *crc = crc32c(from.subspan(done, kChecksummedBytes), *crc);
  }
  return done;
}

}  // namespace

uint32_t stream_crc32c(MutableByteView to, ByteView from, uint32_t crc) {
  CKPT_ASSERT(to.size() == from.size());
  if (from.size() < kStreamedBytesMin) return copy_crc32c(to, from, crc);
  const size_t head = -reinterpret_cast<uintptr_t>(to.data()) % kLineBytes;
  crc = copy_crc32c(to.first(head), from.first(head), crc);
  const size_t done = head + stream_pieces(to.data() + head, from.subspan(head), &crc);
  _mm_sfence();  // streaming stores are weakly ordered
  return copy_crc32c(to.subspan(done), from.subspan(done), crc);
}

#else

uint32_t stream_crc32c(MutableByteView to, ByteView from, uint32_t crc) {
  return copy_crc32c(to, from, crc);
}

#endif

}  // namespace ckpt::base
