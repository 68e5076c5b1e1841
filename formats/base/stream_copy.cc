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

// Without folding so little is checksummed while the stores of it are still on their way, and is in
// the L1 cache.
constexpr size_t kChecksummedBytes = 512;
constexpr size_t kLineBytes = crc32c_fold::kLineBytes;
constexpr size_t kStoreBytes = sizeof(__m128i);
// What a processor fetches ahead by itself stops at pages, and stores that pass the caches leave it
// less to go by.
constexpr size_t kFetchedAheadBytes = 1024;
// Less is not worth the wait for the last stores.
constexpr size_t kStreamedBytesMin = 4096;

// Whole lines, to where a line begins.
void stream(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kLineBytes) {
    __m128i line[kLineBytes / kStoreBytes];
    // Beyond the end, too: a hint never faults.
    _mm_prefetch(from + at + kFetchedAheadBytes, _MM_HINT_T0);
    std::memcpy(line, from + at, kLineBytes);
    for (size_t i = 0; i < kLineBytes / kStoreBytes; ++i) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at) + i, line[i]);
    }
  }
}

// Of pieces that end where the next begins; the rest is left. Returns how much is done.
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
  _mm_sfence();  // they are weakly ordered
  return copy_crc32c(to.subspan(done), from.subspan(done), crc);
}

#else

uint32_t stream_crc32c(MutableByteView to, ByteView from, uint32_t crc) {
  return copy_crc32c(to, from, crc);
}

#endif

}  // namespace ckpt::base
