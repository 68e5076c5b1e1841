#include "formats/segment.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "formats/base/checked.h"
#include "formats/base/crc32c.h"
#include "formats/codec.h"

namespace ckpt {
namespace {

constexpr uint64_t kSegmentMagic = 0x0047455354504b43;  // the bytes "CKPTSEG\0"
constexpr uint64_t kExtentMagic = 0x0054584554504b43;   // the bytes "CKPTEXT\0"

// The first block of a segment file. The rest of the block is zero and covered by the checksum.
struct SegmentHeaderOnDisk {
  uint64_t magic;        // tells a segment of ours from any other file
  uint32_t version;      // kSegmentFormatVersion: a newer one is refused, not guessed at
  uint32_t crc32c;       // of the whole block, with this field zero
  base::Hash128 store;   // a file of another store is refused
  uint64_t segment;      // a renamed file is refused
  uint64_t bytes;        // preallocated size: a truncated file is seen
  uint64_t created_ns;   // for people
  uint64_t reserved[1];  // zero
};
static_assert(sizeof(SegmentHeaderOnDisk) == 64);

// The start of an extent; `fragment_count` fragments follow, then zeros up to the block.
struct ExtentHeaderOnDisk {
  uint64_t magic;           // found where the journal says an extent begins
  uint32_t version;         // 1: FragmentOnDisk; 2, or 3 with a delta: EncodedFragmentOnDisk
  uint32_t crc32c;          // of the whole header, padding included, with this field zero
  uint32_t header_bytes;    // whole blocks; says how much the checksum covers
  uint32_t fragment_count;  // entries of the table that follows
  base::Hash128 store;      // against a misdirected write of another store
  uint64_t segment;         // against a write to the wrong file
  uint64_t offset;          // against a write to the wrong place in the file
  uint64_t run;             // owner: double entry with the journal's commit record
  uint64_t epoch;
  uint64_t step;
  uint32_t lineage;
  uint32_t attempt;
  uint32_t rank;
  uint32_t payload_crc32c;  // of the padded payload: also covers gaps and padding
  uint64_t sequence;        // against an older extent that shows through a lost write
  uint64_t payload_bytes;   // before padding to the block
  uint64_t reserved[2];     // zero
};
static_assert(sizeof(ExtentHeaderOnDisk) == 128);

struct FragmentOnDisk {
  uint32_t unit;
  uint32_t codec;
  uint64_t offset;
  uint64_t length;
  uint64_t payload_offset;
  uint32_t crc32c;
  uint32_t reserved;  // zero
};
static_assert(sizeof(FragmentOnDisk) == 40);

// Versions 2 and 3.
struct EncodedFragmentOnDisk {
  FragmentOnDisk fragment;
  uint64_t encoded_bytes;
  uint32_t encoded_crc32c;
  uint32_t base_crc32c;  // against another base; zero if no delta
};
static_assert(sizeof(EncodedFragmentOnDisk) == 56);

uint32_t version_of(const std::vector<ExtentFragment>& fragments) {
  uint32_t version = 1;
  for (const ExtentFragment& fragment : fragments) {
    if (is_delta(fragment.codec)) return 3;
    if (fragment.codec != 0) version = 2;
  }
  return version;
}

uint64_t entry_bytes(uint32_t version) {
  return version == 1 ? sizeof(FragmentOnDisk) : sizeof(EncodedFragmentOnDisk);
}

uint64_t header_bytes_of(uint32_t version, uint64_t fragment_count) {
  return base::align_up(sizeof(ExtentHeaderOnDisk) + fragment_count * entry_bytes(version),
                        kBlockBytes);
}

// CRC32C of a header, with its own field as zero.
uint32_t header_crc32c(ByteView header, size_t crc_at) {
  constexpr std::array<std::byte, sizeof(uint32_t)> kZero{};
  const uint32_t before = base::crc32c(header.first(crc_at));
  return base::crc32c(header.subspan(crc_at + kZero.size()), base::crc32c(kZero, before));
}

FragmentOnDisk to_disk(const ExtentFragment& fragment) {
  return {.unit = fragment.unit,
          .codec = fragment.codec,
          .offset = fragment.offset,
          .length = fragment.length,
          .payload_offset = fragment.payload_offset,
          .crc32c = fragment.crc32c,
          .reserved = 0};
}

Error corrupt(std::string_view what, std::string_view how) {
  return make_error(ErrorCode::kCorrupt, "{}: {}", what, how);
}

// Checks the magic, then the version, which both kinds of header begin with.
Status check_start(std::string_view what, ByteView bytes, uint64_t magic, uint32_t known) {
  static_assert(offsetof(SegmentHeaderOnDisk, version) == offsetof(ExtentHeaderOnDisk, version));
  if (base::load<uint64_t>(bytes.data()) != magic) return corrupt(what, "its magic is missing");
  const auto version = base::load<uint32_t>(bytes.data() + offsetof(SegmentHeaderOnDisk, version));
  if (version > known) {
    return make_error(ErrorCode::kVersionMismatch, "{}: format version {}, this program knows {}",
                      what, version, known);
  }
  if (version == 0) return corrupt(what, "format version 0");
  return ok_status();
}

// Appends the fragment if it fits after the previous ones.
Status take_fragment(ExtentHeader& header, const EncodedFragmentOnDisk& entry) {
  const FragmentOnDisk& disk = entry.fragment;
  const auto label = [&] {
    return fmt::format("extent header: fragment {} of unit number {}", header.fragments.size(),
                       disk.unit);
  };
  const uint64_t taken_to = header.fragments.empty() ? 0
                                                     : header.fragments.back().payload_offset +
                                                           header.fragments.back().stored_bytes();
  const Status encoding =
      check_encoding(disk.codec, disk.length, entry.encoded_bytes, entry.encoded_crc32c);
  if (!encoding.ok()) {
    return make_error(encoding.error().code, "{}: {}", label(), encoding.error().message);
  }
  const ExtentFragment fragment{.unit = disk.unit,
                                .codec = disk.codec,
                                .offset = disk.offset,
                                .length = disk.length,
                                .payload_offset = disk.payload_offset,
                                .crc32c = disk.crc32c,
                                .encoded_crc32c = entry.encoded_crc32c,
                                .encoded_bytes = entry.encoded_bytes,
                                .base_crc32c = entry.base_crc32c};
  if (disk.length == 0 || !base::checked_add(disk.offset, disk.length)) {
    return corrupt(label(), "its range in the unit is empty or overflows");
  }
  if (disk.payload_offset < taken_to ||
      !base::range_fits(disk.payload_offset, fragment.stored_bytes(), header.payload_bytes)) {
    return corrupt(label(), "overlaps the one before it, or ends beyond the payload");
  }
  if (disk.reserved != 0) return corrupt(label(), "reserved bytes are not zero");
  if (entry.base_crc32c != 0 && !is_delta(disk.codec)) {
    return corrupt(label(), "it has a base, and is no delta");
  }
  header.fragments.push_back(fragment);
  return ok_status();
}

// Checks the sizes first (they tell what the checksum covers), then the checksum, then the rest.
Status check_extent(const ExtentHeaderOnDisk& disk, ByteView bytes) {
  constexpr std::string_view kWhat = "extent header";
  if (disk.header_bytes > kExtentHeaderBytesMax ||
      disk.header_bytes != header_bytes_of(disk.version, disk.fragment_count)) {
    return corrupt(
        kWhat, fmt::format("{} bytes for {} fragments", disk.header_bytes, disk.fragment_count));
  }
  if (bytes.size() < disk.header_bytes) {
    return make_error(ErrorCode::kInvalidArgument, "{}: takes {} bytes, {} were given", kWhat,
                      disk.header_bytes, bytes.size());
  }
  const ByteView header = bytes.first(disk.header_bytes);
  if (header_crc32c(header, offsetof(ExtentHeaderOnDisk, crc32c)) != disk.crc32c) {
    return corrupt(kWhat, "does not match its checksum");
  }
  const uint64_t used = sizeof(disk) + disk.fragment_count * entry_bytes(disk.version);
  if (disk.reserved[0] != 0 || disk.reserved[1] != 0 || !base::all_zero(header.subspan(used))) {
    return corrupt(kWhat, "reserved bytes or padding are not zero");
  }
  constexpr uint64_t kPayloadBytesMax = std::numeric_limits<int64_t>::max() / 2;
  if (disk.payload_bytes == 0 || disk.payload_bytes > kPayloadBytesMax ||
      !base::is_aligned(disk.offset, kBlockBytes)) {
    return corrupt(
        kWhat, fmt::format("payload of {} bytes at offset {}", disk.payload_bytes, disk.offset));
  }
  return ok_status();
}

}  // namespace

void encode_segment_header(const SegmentHeader& header, MutableByteView block) {
  CKPT_ASSERT(block.size() == kBlockBytes);
  std::memset(block.data(), 0, block.size());
  SegmentHeaderOnDisk disk{.magic = kSegmentMagic,
                           .version = kSegmentFormatVersion,
                           .crc32c = 0,
                           .store = header.store,
                           .segment = header.segment,
                           .bytes = header.bytes,
                           .created_ns = header.created_ns,
                           .reserved = {}};
  base::store(block.data(), disk);
  disk.crc32c = base::crc32c(block);
  base::store(block.data(), disk);
}

Result<SegmentHeader> decode_segment_header(ByteView block) {
  constexpr std::string_view kWhat = "segment header";
  if (block.size() < kBlockBytes) return corrupt(kWhat, "the file is shorter than a block");
  block = block.first(kBlockBytes);
  CKPT_TRY(check_start(kWhat, block, kSegmentMagic, kSegmentFormatVersion));
  const auto disk = base::load<SegmentHeaderOnDisk>(block.data());
  if (header_crc32c(block, offsetof(SegmentHeaderOnDisk, crc32c)) != disk.crc32c) {
    return corrupt(kWhat, "does not match its checksum");
  }
  if (disk.reserved[0] != 0 || !base::all_zero(block.subspan(sizeof(disk)))) {
    return corrupt(kWhat, "reserved bytes or padding are not zero");
  }
  return SegmentHeader{.store = disk.store,
                       .segment = disk.segment,
                       .bytes = disk.bytes,
                       .created_ns = disk.created_ns};
}

uint64_t extent_header_bytes(const std::vector<ExtentFragment>& fragments) {
  return header_bytes_of(version_of(fragments), fragments.size());
}

uint64_t extent_header_bytes(size_t raw_fragments) {
  return header_bytes_of(version_of({}), raw_fragments);
}

uint32_t encode_extent_header(const ExtentHeader& header, MutableByteView out) {
  CKPT_ASSERT(out.size() == extent_header_bytes(header.fragments));
  CKPT_ASSERT(out.size() <= kExtentHeaderBytesMax);
  std::memset(out.data(), 0, out.size());
  ExtentHeaderOnDisk disk{.magic = kExtentMagic,
                          .version = version_of(header.fragments),
                          .crc32c = 0,
                          .header_bytes = static_cast<uint32_t>(out.size()),
                          .fragment_count = static_cast<uint32_t>(header.fragments.size()),
                          .store = header.store,
                          .segment = header.segment,
                          .offset = header.offset,
                          .run = header.snapshot.run,
                          .epoch = header.snapshot.epoch,
                          .step = header.snapshot.step,
                          .lineage = header.snapshot.lineage,
                          .attempt = header.snapshot.attempt,
                          .rank = header.rank,
                          .payload_crc32c = header.payload_crc32c,
                          .sequence = header.sequence,
                          .payload_bytes = header.payload_bytes,
                          .reserved = {}};
  base::store(out.data(), disk);
  std::byte* at = out.data() + sizeof(disk);
  for (const ExtentFragment& fragment : header.fragments) {
    if (disk.version == 1) {
      base::store(at, to_disk(fragment));
    } else {
      base::store(at, EncodedFragmentOnDisk{.fragment = to_disk(fragment),
                                            .encoded_bytes = fragment.encoded_bytes,
                                            .encoded_crc32c = fragment.encoded_crc32c,
                                            .base_crc32c = fragment.base_crc32c});
    }
    at += entry_bytes(disk.version);
  }
  disk.crc32c = base::crc32c(out);
  base::store(out.data(), disk);
  return disk.crc32c;
}

Result<ExtentHeader> decode_extent_header(ByteView bytes) {
  constexpr std::string_view kWhat = "extent header";
  if (bytes.size() < kBlockBytes) return corrupt(kWhat, "shorter than a block");
  CKPT_TRY(check_start(kWhat, bytes, kExtentMagic, kExtentFormatVersion));
  const auto disk = base::load<ExtentHeaderOnDisk>(bytes.data());
  CKPT_TRY(check_extent(disk, bytes));
  ExtentHeader header{.store = disk.store,
                      .segment = disk.segment,
                      .offset = disk.offset,
                      .snapshot = {.run = disk.run,
                                   .lineage = disk.lineage,
                                   .epoch = disk.epoch,
                                   .step = disk.step,
                                   .attempt = disk.attempt},
                      .rank = disk.rank,
                      .sequence = disk.sequence,
                      .payload_bytes = disk.payload_bytes,
                      .payload_crc32c = disk.payload_crc32c,
                      .fragments = {}};
  header.fragments.reserve(disk.fragment_count);
  const std::byte* at = bytes.data() + sizeof(disk);
  for (uint32_t i = 0; i < disk.fragment_count; ++i, at += entry_bytes(disk.version)) {
    EncodedFragmentOnDisk entry{};
    if (disk.version == 1) {
      entry.fragment = base::load<FragmentOnDisk>(at);
    } else {
      entry = base::load<EncodedFragmentOnDisk>(at);
    }
    CKPT_TRY(take_fragment(header, entry));
  }
  if (disk.version != version_of(header.fragments)) {
    return corrupt(kWhat, fmt::format("of version {}, with fragments of version {}", disk.version,
                                      version_of(header.fragments)));
  }
  return header;
}

uint32_t payload_crc32c(const std::vector<ExtentFragment>& fragments, uint64_t padded_bytes) {
  uint32_t crc = 0;
  uint64_t done = 0;
  for (const ExtentFragment& fragment : fragments) {
    CKPT_ASSERT(fragment.payload_offset >= done);
    CKPT_ASSERT(base::range_fits(fragment.payload_offset, fragment.stored_bytes(), padded_bytes));
    crc = base::crc32c_extend_zeros(crc, fragment.payload_offset - done);
    crc = base::crc32c_combine(crc, fragment.stored_crc32c(), fragment.stored_bytes());
    done = fragment.payload_offset + fragment.stored_bytes();
  }
  return base::crc32c_extend_zeros(crc, padded_bytes - done);
}

}  // namespace ckpt
