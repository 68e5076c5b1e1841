#include "tests/formats/samples.h"

#include <memory>

#include "formats/blob.h"
#include "formats/rights.h"
#include "formats/wire/convert.h"

namespace ckpt::test {
namespace {

template <typename BodyT>
fb::MessageT message(BodyT body) {
  fb::MessageT out;
  out.body.Set(std::move(body));
  return out;
}
template <typename BodyT>
fb::RecordT record(BodyT body) {
  fb::RecordT out;
  out.body.Set(std::move(body));
  return out;
}

template <typename... BodyT>
std::vector<fb::MessageT> default_messages() {
  std::vector<fb::MessageT> out;
  (out.push_back(message(BodyT{})), ...);
  return out;
}

}  // namespace

UnitSpec sample_unit(std::string name) {
  return {.name = std::move(name),
          .layer = 3,
          .expert = 17,
          .part = UnitPart::kWeights,
          .bytes = 144,
          .tensors = {{.name = "w1", .dtype = DType::kF32, .shape = {4, 8}, .offset = 0},
                      {.name = "w2", .dtype = DType::kBF16, .shape = {8}, .offset = 128}}};
}

fb::MessageT sample_hello() {
  fb::HelloT hello;
  hello.protocol_version = wire::kProtocolVersion;
  hello.client = "test";
  hello.kind = fb::SessionKind::Trainer;
  hello.run = "tiny";
  hello.arena_bytes = 1u << 20;
  hello.slab_bytes = 1u << 16;
  return message(std::move(hello));
}

fb::MessageT sample_register_units(size_t units) {
  fb::RegisterUnitsT body;
  body.request = 1;
  body.metadata = R"({"layers":4})";
  for (size_t i = 0; i < units; ++i) {
    const UnitSpec unit = sample_unit(fmt::format("layers.3.experts.{}.weights", i));
    body.units.push_back(std::make_unique<fb::UnitT>(wire::to_fb(unit, static_cast<UnitId>(i))));
    body.codecs.push_back(i % 2 == 0 ? fb::UnitCodec::Auto : fb::UnitCodec::Zstd);
  }
  return message(std::move(body));
}

fb::MessageT sample_begin_snapshot() {
  fb::BeginSnapshotT body;
  body.request = 7;
  body.epoch = 2;
  body.step = 1200;
  body.attempt = 1;
  body.plan = fb::Hash(1, 2);
  body.units = {0, 1};
  body.fragments = {fb::Range(0, 0, 0, 144), fb::Range(1, 0, 72, 72)};
  body.slabs_wanted = 1;
  body.out_of_slabs = fb::OutOfSlabs::Skip;
  body.metrics.push_back(std::make_unique<fb::MetricT>());
  body.metrics.back()->name = "loss";
  body.metrics.back()->value = 2.5;
  body.expert_tokens = {fb::ExpertTokens(3, 0, 900), fb::ExpertTokens(3, 1, 0)};
  body.staleness_max = 40;
  body.memory_units = {1};
  body.expert_lost = {fb::ExpertTokens(3, 0, 70)};
  body.blobs.push_back(std::make_unique<fb::BlobDeclaredT>());
  body.blobs.back()->name = "rng";
  body.blobs.back()->bytes = 40;
  body.grown.push_back(std::make_unique<fb::GrownUnitT>());
  body.grown.back()->unit = std::make_unique<fb::UnitT>(wire::to_fb(sample_unit("adapter"), 2));
  body.grown.back()->codec = fb::UnitCodec::Zstd;
  body.grown.back()->flags = 1;
  return message(std::move(body));
}

std::vector<fb::MessageT> one_message_of_each_kind() {
  auto out =
      default_messages<fb::HelloT, fb::WelcomeT, fb::ErrorReplyT, fb::DoneT, fb::RegisterUnitsT,
                       fb::JoinGroupT, fb::RejoinEpochT, fb::EpochStartedT, fb::EpochEndedT,
                       fb::LeaveGroupT, fb::KvSetT, fb::KvGetT, fb::KvValueT, fb::BeginSnapshotT,
                       fb::LeaseSlabsT, fb::SlabsLeasedT, fb::SealSlabT, fb::AbortSnapshotT,
                       fb::SnapshotStateT, fb::OpenRestoreT, fb::RestoreOpenedT, fb::RestoreWindowT,
                       fb::ReleaseWindowT, fb::CloseRestoreT, fb::QueryT, fb::QueryReplyT,
                       fb::LocatedT, fb::LocatedReadT, fb::JoinersWaitingT, fb::HandBackT,
                       fb::HandedBackT, fb::HoldCommitT, fb::CommitHeldT, fb::RenewHoldT,
                       fb::ReleaseHoldT, fb::HoldEndedT, fb::ListBlobsT, fb::BlobsListedT>();
  fb::ReopenSnapshotT reopen;
  reopen.begin = std::make_unique<fb::BeginSnapshotT>();
  out.push_back(message(std::move(reopen)));
  return out;
}

fb::RecordT sample_store_opened() {
  fb::StoreOpenedT body;
  body.store = fb::Hash(11, 12);
  body.time_ns = 1'700'000'000'000'000'000;
  body.format_version = kStoreFormatVersion;
  body.clean = true;
  return record(std::move(body));
}

fb::RecordT sample_run_created(std::string metadata) {
  fb::RunCreatedT body;
  body.run = 1;
  body.name = "tiny";
  body.uid = 1000;
  body.metadata = std::move(metadata);
  return record(std::move(body));
}

std::vector<fb::RecordT> sample_retention_records() {
  fb::DeletedT deleted;
  deleted.run = 1;
  deleted.lineage = 2;
  deleted.step = 1200;
  deleted.reason = "no rule keeps it";
  deleted.kept = {0, 7, 8};
  deleted.kept_tokens = true;
  fb::RulesSetT rules;
  rules.run = 1;
  rules.last = 5;
  rules.within_ns = 7'000'000'000;
  rules.every_steps = 1000;
  rules.tags = {"good", "better"};
  rules.best.push_back(std::make_unique<fb::KeepBestT>());
  rules.best.back()->metric = "loss";
  rules.best.back()->count = 3;
  fb::PinnedT pinned;
  pinned.run = 1;
  pinned.step = 1200;
  fb::UnpinnedT unpinned;
  unpinned.run = 1;
  unpinned.step = 1200;
  fb::SpaceFreedT freed;
  freed.run = 1;
  freed.records = {17, 18, 40};
  fb::RunRemovedT removed;
  removed.run = 2;
  removed.time_ns = 5;
  removed.reason = "removed by user 1000";
  removed.commits = 3;
  removed.bytes = 1 << 20;
  fb::MovedT moved;
  moved.run = 1;
  moved.lineage = 2;
  moved.step = 1200;
  moved.from = {fb::ExtentAt(1, kBlockBytes)};
  moved.extents.push_back(std::make_unique<fb::ExtentT>());
  moved.extents.back()->segment = 2;
  moved.extents.back()->payload_bytes = 60;
  moved.fragments = {fb::Fragment(0, 0, 0, 100, 0, 0xc0ffee, 1)};
  moved.encoded = {fb::Encoded(0, 0xc0de, 60)};
  std::vector<fb::RecordT> records;
  records.reserve(8);
  records.push_back(record(std::move(deleted)));
  records.push_back(record(std::move(rules)));
  records.push_back(record(std::move(pinned)));
  records.push_back(record(std::move(unpinned)));
  fb::GrantedT granted = to_fb(54'321, {.read = true, .commit = true});
  granted.run = 1;
  records.push_back(record(std::move(granted)));
  records.push_back(record(std::move(freed)));
  records.push_back(record(std::move(removed)));
  records.push_back(record(std::move(moved)));
  return records;
}

fb::RecordT sample_committed(uint64_t step, size_t fragments) {
  fb::CommittedT body;
  body.run = 1;
  body.lineage = 1;
  body.step = step;
  body.plan = fb::Hash(21, 22);
  body.full = true;
  auto extent = std::make_unique<fb::ExtentT>();
  extent->segment = 1;
  extent->offset = kBlockBytes;
  extent->payload_bytes = fragments * 100;
  body.extents.push_back(std::move(extent));
  for (size_t i = 0; i < fragments; ++i) {
    body.fragments.emplace_back(static_cast<uint32_t>(i), 0, 0, 100, i * 100, 0xc0ffee, 0);
  }
  body.expert_tokens = {fb::ExpertTokens(3, 0, 900), fb::ExpertTokens(3, 1, 0)};
  body.alarms = {fb::Alarm(0, fb::AlarmKind::NotFinite, 2)};
  body.expert_lost = {fb::ExpertTokens(3, 0, 70)};
  body.encoded = {fb::Encoded(0, 0xc0de, 60)};
  body.fragments[0] = fb::Fragment(0, 0, 0, 100, 0, 0xc0ffee, 5);
  body.bases = {fb::Base(0, 0, 0, 0xba5e, 1, 70, 0xc0df, 2)};
  body.blobs.push_back(std::make_unique<fb::BlobT>());
  body.blobs.back()->id = blob_id(0, 0);
  body.blobs.back()->name = "rng";
  body.blobs.back()->bytes = 40;
  body.blob_fragments = {fb::Fragment(blob_id(0, 0), 0, 0, 40, fragments * 100, 0xb10b, 0)};
  body.grown.push_back(std::make_unique<fb::UnitT>(wire::to_fb(sample_unit("adapter"), 0)));
  return record(std::move(body));
}

SampleJournal sample_journal(uint64_t salt) {
  std::vector<std::vector<fb::RecordT>> batches(4);
  batches[0].push_back(sample_store_opened());
  batches[1].push_back(sample_run_created("{}"));
  batches[1].push_back(sample_committed(5, 3));
  batches[1].push_back(sample_committed(10, 3));
  batches[2].push_back(sample_committed(15, 150));
  batches[2].push_back(sample_run_created(std::string(3000, 'x')));
  batches[3].push_back(sample_committed(20, 1));

  JournalEncoder::Position start;
  start.salt = salt;
  JournalEncoder encoder(start);
  SampleJournal out;
  for (const std::vector<fb::RecordT>& records : batches) {
    const JournalEncoder::Batch batch = encoder.encode(records);
    out.batch_offsets.push_back(batch.offset);
    out.image.insert(out.image.end(), batch.bytes.begin(), batch.bytes.end());
  }
  out.end = encoder.position();
  out.batch_offsets.push_back(out.end.offset);
  return out;
}

SegmentHeader sample_segment_header() {
  return {.store = {.low = 11, .high = 12}, .segment = 3, .bytes = 1u << 30, .created_ns = 77};
}

ExtentHeader sample_extent_header(size_t fragments) {
  ExtentHeader header{.store = {.low = 11, .high = 12},
                      .segment = 3,
                      .offset = 8192,
                      .snapshot = {.run = 1, .lineage = 2, .epoch = 3, .step = 1200, .attempt = 4},
                      .rank = 5,
                      .sequence = 6,
                      .payload_bytes = fragments * 128,
                      .payload_crc32c = 0x01020304,
                      .fragments = {}};
  for (size_t i = 0; i < fragments; ++i) {
    header.fragments.push_back({.unit = static_cast<UnitId>(i),
                                .codec = 0,
                                .offset = i * 1000,
                                .length = 100,
                                .payload_offset = i * 128,
                                .crc32c = static_cast<uint32_t>(i * 31)});
  }
  return header;
}

ExtentHeader sample_encoded_extent_header(size_t fragments) {
  ExtentHeader header = sample_extent_header(fragments);
  header.fragments.back().codec = 3;
  header.fragments.back().encoded_bytes = 60;
  header.fragments.back().encoded_crc32c = 0xfeed;
  return header;
}

ExtentHeader sample_delta_extent_header(size_t fragments) {
  ExtentHeader header = sample_encoded_extent_header(fragments);
  header.fragments.back().codec = 7;
  header.fragments.back().base_crc32c = 0xba5e;
  return header;
}

std::vector<std::byte> encoded(const SegmentHeader& header) {
  std::vector<std::byte> block(kBlockBytes);
  encode_segment_header(header, block);
  return block;
}

std::vector<std::byte> encoded(const ExtentHeader& header) {
  std::vector<std::byte> bytes(extent_header_bytes(header.fragments));
  encode_extent_header(header, bytes);
  return bytes;
}

std::vector<std::byte> safetensors_file(std::string_view json, uint64_t data_bytes) {
  std::vector<std::byte> file(8 + json.size() + data_bytes);
  base::store(file.data(), uint64_t{json.size()});
  std::memcpy(file.data() + 8, json.data(), json.size());
  return file;
}

}  // namespace ckpt::test
