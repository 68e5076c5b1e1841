// Valid objects that the tests of formats/ start from: small, and with every field used.
#pragma once

#include <string>
#include <vector>

#include "formats/journal.h"
#include "formats/segment.h"
#include "formats/unit.h"
#include "formats/wire/frame.h"

namespace ckpt::test {

// Two tensors, F32 [4, 8] and BF16 [8], 144 bytes.
UnitSpec sample_unit(std::string name);

fb::MessageT sample_hello();
fb::MessageT sample_register_units(size_t units);
fb::MessageT sample_begin_snapshot();
// One message of every kind, with most fields at their defaults.
std::vector<fb::MessageT> one_message_of_each_kind();

fb::RecordT sample_store_opened();
fb::RecordT sample_run_created(std::string metadata);
fb::RecordT sample_committed(uint64_t step, size_t fragments);

// Later records about a run: Deleted, RulesSet, Pinned, Unpinned, Granted, SpaceFreed, RunRemoved,
// Moved.
std::vector<fb::RecordT> sample_retention_records();

// A journal of four batches with 1, 3, 2 and 1 records; the third takes several blocks.
struct SampleJournal {
  std::vector<std::byte> image;
  std::vector<uint64_t> batch_offsets;  // one per batch, then the end
  JournalEncoder::Position end;
};
SampleJournal sample_journal(uint64_t salt = 0x5a17);

SegmentHeader sample_segment_header();
// Fragments of 100 bytes with gaps between them.
ExtentHeader sample_extent_header(size_t fragments);
// The last fragment is encoded.
ExtentHeader sample_encoded_extent_header(size_t fragments);
// The last fragment is a delta.
ExtentHeader sample_delta_extent_header(size_t fragments);
std::vector<std::byte> encoded(const SegmentHeader& header);
std::vector<std::byte> encoded(const ExtentHeader& header);

// A whole safetensors file with these JSON bytes as its header and zeros as its data.
std::vector<std::byte> safetensors_file(std::string_view json, uint64_t data_bytes);

}  // namespace ckpt::test
