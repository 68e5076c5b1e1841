#include <bit>
#include <type_traits>

#include "formats/base/assert.h"
#include "kernels/byte_plane.h"
#include "kernels/cuda/launch.h"

namespace ckpt::kernels {
namespace {

// Elements of a group: 4 bytes of every plane.
constexpr int64_t kGroup = 4;
// Independent loads that each thread keeps in flight.
constexpr int kInFlight = 4;

// Byte `which` of each of four words.
__device__ inline uint32_t pick(uint32_t a, uint32_t b, uint32_t c, uint32_t d, unsigned which) {
  const unsigned selector = which | (which + 4) << 4;
  return __byte_perm(__byte_perm(a, b, selector), __byte_perm(c, d, selector), 0x5410);
}

// The elements of a group, as in memory, and the group's words in the planes.
template <int kBytes>
struct alignas(kBytes == 2 ? 8 : 16) Elements {
  uint32_t word[kBytes];
};
template <int kBytes>
struct Planes {
  uint32_t word[kBytes];
};

template <int kBytes>
__device__ inline Planes<kBytes> split(const Elements<kBytes>& from) {
  Planes<kBytes> planes{};
  if constexpr (kBytes == 2) {
    planes.word[0] = __byte_perm(from.word[0], from.word[1], 0x6420);
    planes.word[1] = __byte_perm(from.word[0], from.word[1], 0x7531);
  } else {
    constexpr int kWords = kBytes / 4;  // words per element
#pragma unroll
    for (int plane = 0; plane < kBytes; ++plane) {
      const uint32_t* const first = from.word + plane / 4;
      planes.word[plane] = pick(first[0], first[kWords], first[2 * kWords], first[3 * kWords],
                                static_cast<unsigned>(plane % 4));
    }
  }
  return planes;
}

template <int kBytes>
__device__ inline Elements<kBytes> join(const Planes<kBytes>& from) {
  Elements<kBytes> elements{};
  if constexpr (kBytes == 2) {
    elements.word[0] = __byte_perm(from.word[0], from.word[1], 0x5140);
    elements.word[1] = __byte_perm(from.word[0], from.word[1], 0x7362);
  } else {
    constexpr int kWords = kBytes / 4;
#pragma unroll
    for (int i = 0; i < kBytes; ++i) {
      const uint32_t* const first = from.word + i % kWords * 4;
      elements.word[i] =
          pick(first[0], first[1], first[2], first[3], static_cast<unsigned>(i / kWords));
    }
  }
  return elements;
}

// Adjacent groups that one thread splits: 8 or 16 bytes, or twice 16.
template <int kBytes, int kGroups>
struct Chunk {
  Elements<kBytes> group[kGroups];
};
// Uses intrinsics: nvcc would split a struct's load.
template <int kBytes, int kGroups>
__device__ inline Chunk<kBytes, kGroups> load_chunk(const Elements<kBytes>* from) {
  using Access = std::conditional_t<sizeof(Chunk<kBytes, kGroups>) == sizeof(uint2), uint2, uint4>;
  struct Accesses {
    Access at[sizeof(Chunk<kBytes, kGroups>) / sizeof(Access)];
  };
  Accesses accesses;
#pragma unroll
  for (size_t i = 0; i < sizeof accesses / sizeof(Access); ++i) {
    accesses.at[i] = __ldg(reinterpret_cast<const Access*>(from) + i);
  }
  return std::bit_cast<Chunk<kBytes, kGroups>>(accesses);
}
template <int kBytes, int kGroups>
__device__ inline void store_chunk(const Chunk<kBytes, kGroups>& chunk, int64_t groups,
                                   uint32_t* to) {
  Planes<kBytes> planes[kGroups];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) planes[i] = split(chunk.group[i]);
#pragma unroll
  for (int64_t plane = 0; plane < kBytes; ++plane) {
    if constexpr (kGroups == 2) {
      const uint2 words = make_uint2(planes[0].word[plane], planes[1].word[plane]);
      __stwb(reinterpret_cast<uint2*>(to + plane * groups), words);
    } else {
      to[plane * groups] = planes[0].word[plane];
    }
  }
}

// `to` holds kBytes planes of chunks * kGroups words. No two threads share a byte.
template <int kBytes, int kGroups>
__global__ void __launch_bounds__(kBlockThreads)
    split_kernel(int64_t chunks, const Elements<kBytes>* __restrict__ from,
                 uint32_t* __restrict__ to) {
  constexpr int64_t kTile = int64_t{kInFlight} * kBlockThreads;
  for (int64_t first = blockIdx.x * kTile + threadIdx.x; first < chunks;
       first += gridDim.x * kTile) {
    Chunk<kBytes, kGroups> loaded[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t chunk = first + i * int64_t{kBlockThreads};
      if (chunk < chunks) loaded[i] = load_chunk<kBytes, kGroups>(from + chunk * kGroups);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t chunk = first + i * int64_t{kBlockThreads};
      if (chunk < chunks) store_chunk(loaded[i], chunks * kGroups, to + chunk * kGroups);
    }
  }
}

// No two threads share a byte, and the arrays do not overlap: the compiler may load several groups
// ahead.
template <int kBytes>
__global__ void __launch_bounds__(kBlockThreads)
    join_kernel(int64_t groups, const uint32_t* __restrict__ from,
                Elements<kBytes>* __restrict__ to) {
  const int64_t stride = int64_t{gridDim.x} * kBlockThreads;
#pragma unroll 4
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < groups; i += stride) {
    Planes<kBytes> planes{};
#pragma unroll
    for (int64_t plane = 0; plane < kBytes; ++plane) {
      planes.word[plane] = from[plane * groups + i];
    }
    to[i] = join(planes);
  }
}

// Fallback for any count and alignment.
__global__ void __launch_bounds__(kBlockThreads)
    split_bytes_kernel(int64_t count, int64_t element_bytes, const std::byte* from, std::byte* to) {
  const int64_t stride = int64_t{gridDim.x} * kBlockThreads;
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < count; i += stride) {
    for (int64_t plane = 0; plane < element_bytes; ++plane) {
      to[plane * count + i] = from[i * element_bytes + plane];
    }
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    join_bytes_kernel(int64_t count, int64_t element_bytes, const std::byte* from, std::byte* to) {
  const int64_t stride = int64_t{gridDim.x} * kBlockThreads;
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < count; i += stride) {
    for (int64_t plane = 0; plane < element_bytes; ++plane) {
      to[i * element_bytes + plane] = from[plane * count + i];
    }
  }
}

bool aligned(const std::byte* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; }

template <int kBytes, int kGroups>
void split_chunks(CudaQueue& queue, int64_t groups, const std::byte* from, std::byte* to) {
  const int64_t chunks = groups / kGroups;
  launch(queue, "splitting byte planes", blocks_for(chunks, int64_t{kInFlight} * kBlockThreads),
         kBlockThreads, split_kernel<kBytes, kGroups>, chunks,
         reinterpret_cast<const Elements<kBytes>*>(from), reinterpret_cast<uint32_t*>(to));
}
template <int kBytes>
void join_groups(CudaQueue& queue, int64_t groups, const std::byte* from, std::byte* to) {
  launch(queue, "joining byte planes", blocks_for(groups, kBlockThreads), kBlockThreads,
         join_kernel<kBytes>, groups, reinterpret_cast<const uint32_t*>(from),
         reinterpret_cast<Elements<kBytes>*>(to));
}

}  // namespace

void split_byte_planes(CudaQueue& queue, int64_t count, int element_bytes, const std::byte* from,
                       std::byte* to) {
  CKPT_ASSERT(element_bytes == 2 || element_bytes == 4 || element_bytes == 8);
  if (count % kGroup != 0 || !aligned(from) || !aligned(to)) {
    launch(queue, "splitting byte planes", blocks_for(count, kBlockThreads), kBlockThreads,
           split_bytes_kernel, count, element_bytes, from, to);
  } else if (element_bytes == 2 && count % (2 * kGroup) == 0) {
    split_chunks<2, 2>(queue, count / kGroup, from, to);
  } else if (element_bytes == 2) {
    split_chunks<2, 1>(queue, count / kGroup, from, to);
  } else if (element_bytes == 4) {
    split_chunks<4, 1>(queue, count / kGroup, from, to);
  } else {
    split_chunks<8, 1>(queue, count / kGroup, from, to);
  }
}

void join_byte_planes(CudaQueue& queue, int64_t count, int element_bytes, const std::byte* from,
                      std::byte* to) {
  CKPT_ASSERT(element_bytes == 2 || element_bytes == 4 || element_bytes == 8);
  if (count % kGroup != 0 || !aligned(from) || !aligned(to)) {
    launch(queue, "joining byte planes", blocks_for(count, kBlockThreads), kBlockThreads,
           join_bytes_kernel, count, element_bytes, from, to);
  } else if (element_bytes == 2) {
    join_groups<2>(queue, count / kGroup, from, to);
  } else if (element_bytes == 4) {
    join_groups<4>(queue, count / kGroup, from, to);
  } else {
    join_groups<8>(queue, count / kGroup, from, to);
  }
}

}  // namespace ckpt::kernels
