// Commit record: the facts that the journal has about one commit.
//
// Table Committed of wire/records.fbs is its only definition, and CommittedT, generated from it,
// the only struct. Code that passes a commit on copies whole structs, never single fields. So a
// field added to Committed, Extent or Metric survives journal, catalog, rebuild, salvage and dedup
// without another edit; tests/ckptd/catalog/commit_fields_test.cc proves it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/ids.h"
#include "formats/base/result.h"
#include "formats/segment.h"
#include "formats/unit.h"
#include "formats/wire/records_generated.h"

namespace ckpt {

// Same bytes as the body of the commit's journal record.
std::vector<std::byte> encode_commit(const fb::CommittedT& commit);
// Errors as decode_record(); kCorrupt also for another kind of record.
Result<fb::CommittedT> decode_commit(ByteView bytes);

// Lengths of a commit record's lists.
struct CommitSize {
  uint64_t fragments = 0;
  uint64_t encoded = 0;
  uint64_t bases = 0;
  uint64_t own_extents = 0;
  uint64_t shared_extents = 0;
  uint64_t tokens = 0;  // expert_tokens and expert_lost
  uint64_t blobs = 0;
  uint64_t blob_name_bytes = 0;  // of all their names; their fragments are among `fragments`
  uint64_t grown_bytes = 0;      // of grown units: the sum of grown_bytes()
};
// Upper bound of these lists in an encoded record, for reservations. The reserve of the journal
// (limits::kJournalReserveMin) covers the rest of the record.
uint64_t encoded_bytes(const CommitSize& size);
// The same for one grown unit in such a record.
uint64_t grown_bytes(const UnitSpec& unit);
// Bounds of all growth of a run, which one message lists: units and tensors, and the sum of
// grown_bytes(). 58 layers x 256 experts x 2 parts with 3 tensors each are 120,000 of 17 MiB.
inline constexpr size_t kGrowthTablesMax = 1u << 17;
inline constexpr uint64_t kGrowthBytesMax = 24u << 20;

// The snapshot that a record (Committed, Moved, SnapshotRefused) names.
template <typename RecordT>
SnapshotKey key_of(const RecordT& record) {
  return {record.run, record.lineage, record.epoch, record.step, record.attempt};
}
template <typename RecordT>
void set_key(RecordT& record, const SnapshotKey& key) {
  record.run = key.run;
  record.lineage = key.lineage;
  record.epoch = key.epoch;
  record.step = key.step;
  record.attempt = key.attempt;
}

// True if an earlier commit wrote the extent.
inline bool is_shared(const fb::ExtentT& extent) { return extent.lineage != 0; }
// The commit that wrote an extent which `commit` lists.
SnapshotKey writer_of(const fb::ExtentT& extent, const SnapshotKey& commit);
// An extent which `commit` lists, as a later commit lists it.
fb::ExtentT as_shared(const fb::ExtentT& extent, const SnapshotKey& commit);

// The blob with this id; null: the commit has none.
const fb::BlobT* find_blob(const fb::CommittedT& commit, UnitId id);
// Name of a unit or blob of the commit in messages; nullopt: neither the run nor the commit has it.
std::optional<std::string> label_of(const fb::CommittedT& commit,
                                    const std::vector<UnitSpec>& units, UnitId unit);

// The extent of one slab, with the fragments that the commit has in it. Without fragments: the slab
// needed no write, or the extent holds only bases.
struct WrittenExtent : fb::ExtentT {
  std::vector<ExtentFragment> fragments;
};

// Place of a delta's base, in a shared extent.
struct WrittenBase {
  SegmentId segment = 0;
  uint64_t extent_offset = 0;
  uint64_t payload_offset = 0;  // from the start of the payload
  uint32_t crc32c = 0;
  uint32_t codec = 0;
  uint32_t encoded_crc32c = 0;
  uint64_t encoded_bytes = 0;
  uint32_t deltas = 0;  // as in records.fbs
};
using WrittenBases = std::map<std::pair<UnitId, uint64_t>, WrittenBase>;  // by unit, offset

// Fills extents and fragments of a commit record, those of blobs apart. Precondition: every delta
// has its base in `bases`, and the base's extent is among the extents.
void fill_extents(const std::vector<WrittenExtent>& extents, fb::CommittedT& commit,
                  const WrittenBases& bases = {});

}  // namespace ckpt
