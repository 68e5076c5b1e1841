// Compares extent headers on disk with the journal.
#include <algorithm>

#include "ckptd/restore/segment_reader.h"
#include "ckptd/safeguards.h"
#include "formats/codec.h"
#include "formats/commit.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::ExtentHeader;
using ckpt::make_error;

ckpt::Error differs(std::string_view what) {
  return make_error(ErrorCode::kCorrupt, "extent header: {} differs from the journal", what);
}

// Both lists ascend in the payload.
bool same_fragments(const ExtentHeader& found, const ExtentHeader& expected, ExtentPart part) {
  if (part == ExtentPart::kWhole) return found.fragments == expected.fragments;
  auto at = found.fragments.begin();
  for (const ckpt::ExtentFragment& fragment : expected.fragments) {
    at = std::find(at, found.fragments.end(), fragment);
    if (at == found.fragments.end()) return false;
    ++at;
  }
  return true;
}

Status compare(const ExtentHeader& found, const ExtentHeader& expected, ExtentPart part) {
  if (found.store != expected.store) return differs("store");
  if (found.segment != expected.segment) return differs("segment");
  if (found.offset != expected.offset) return differs("offset");
  if (found.snapshot != expected.snapshot) return differs("snapshot");
  if (found.rank != expected.rank) return differs("rank");
  if (found.payload_bytes != expected.payload_bytes) return differs("payload length");
  if (found.payload_crc32c != expected.payload_crc32c) return differs("payload CRC32C");
  if (!same_fragments(found, expected, part)) return differs("fragment table");
  return {};
}

}  // namespace

std::vector<ExtentHeader> expected_headers(const ckpt::base::Hash128& store,
                                           const ckpt::fb::CommittedT& commit) {
  std::vector<ExtentHeader> headers;
  headers.reserve(commit.extents.size());
  for (const auto& extent : commit.extents) {
    ExtentHeader header;
    header.store = store;
    header.segment = extent->segment;
    header.offset = extent->offset;
    header.snapshot = ckpt::writer_of(*extent, ckpt::key_of(commit));
    header.rank = extent->rank;
    header.payload_bytes = extent->payload_bytes;
    header.payload_crc32c = extent->payload_crc32c;
    headers.push_back(std::move(header));
  }
  ckpt::EncodedFragments encoded(commit.encoded);
  ckpt::BasesOfFragments bases(commit.bases);
  for (const auto& fragment : commit.fragments) {
    const ckpt::fb::Encoded encoding = encoded.next().value_or(ckpt::fb::Encoded());
    const std::optional<ckpt::fb::Base> base = bases.next();
    if (fragment.extent() >= headers.size()) continue;  // the catalog refuses such a record
    headers[fragment.extent()].fragments.push_back(
        {fragment.unit(), fragment.codec(), fragment.offset(), fragment.length(),
         fragment.payload_offset(), fragment.crc32c(), encoding.crc32c(), encoding.bytes(),
         base ? base->crc32c() : 0});
    if (!base || base->extent() >= headers.size()) continue;
    headers[base->extent()].fragments.push_back(
        {fragment.unit(), base->codec(), fragment.offset(), fragment.length(),
         base->payload_offset(), base->crc32c(), base->encoded_crc32c(), base->encoded_bytes()});
  }
  for (const ckpt::fb::Fragment& fragment : commit.blob_fragments) {
    if (fragment.extent() >= headers.size()) continue;
    headers[fragment.extent()].fragments.push_back({.unit = fragment.unit(),
                                                    .codec = fragment.codec(),
                                                    .offset = fragment.offset(),
                                                    .length = fragment.length(),
                                                    .payload_offset = fragment.payload_offset(),
                                                    .crc32c = fragment.crc32c()});
  }
  for (ExtentHeader& header : headers) {
    std::sort(header.fragments.begin(), header.fragments.end(),
              [](const auto& a, const auto& b) { return a.payload_offset < b.payload_offset; });
  }
  return headers;
}

Status check_extent_header(ckpt::ByteView bytes, const ExtentHeader& expected,
                           uint32_t header_crc32c, ExtentPart part) {
  auto found = ckpt::decode_extent_header(bytes);
  if (!found.ok()) return make_error(ErrorCode::kCorrupt, "{}", found.error().message);
  if (left_out(Safeguard::kExtentPlace)) return {};
  CKPT_TRY(compare(*found, expected, part));
  // Encoding the header again must give the same bytes: then the padding is empty, and the recorded
  // CRC belongs to exactly this header.
  std::vector<std::byte> again(ckpt::extent_header_bytes(found->fragments));
  if (again.size() != bytes.size()) return differs("header length");
  if (ckpt::encode_extent_header(*found, again) != header_crc32c) return differs("header CRC32C");
  if (!std::equal(again.begin(), again.end(), bytes.begin())) return differs("padding");
  return {};
}

Status check_commit_headers(SegmentReader& segments, const ckpt::fb::CommittedT& commit,
                            const std::vector<ckpt::UnitSpec>& units, ExtentPart part) {
  const std::vector<ExtentHeader> headers = expected_headers(segments.store(), commit);
  for (size_t i = 0; i < headers.size(); ++i) {
    const ckpt::fb::ExtentT& extent = *commit.extents[i];
    const auto bytes = segments.read_header(extent.segment, extent.offset, extent.header_bytes);
    const ExtentPart known = ckpt::is_shared(extent) ? ExtentPart::kRest : part;
    const Status checked =
        bytes.ok() ? check_extent_header(*bytes, headers[i], extent.header_crc32c, known)
                   : Status(bytes.error());
    if (checked.ok()) continue;
    // The first sharing checked a shared extent, and its bytes have their own checksums. A bad
    // header block must not condemn every commit that shares the extent; a reclaimed block must.
    const bool shared = ckpt::is_shared(extent);
    if (shared && bytes.ok() && !ckpt::base::all_zero(*bytes)) continue;
    const auto& fragments = headers[i].fragments;
    const auto unit =
        fragments.empty() ? std::nullopt : ckpt::label_of(commit, units, fragments.front().unit);
    return make_error(checked.error().code, "unit {}: segment {} offset {}: {}",
                      unit.value_or("(none)"), extent.segment, extent.offset,
                      checked.error().message);
  }
  return {};
}

}  // namespace ckptd
