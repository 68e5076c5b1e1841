// Journal records, made from plain values.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ckptd/catalog/catalog.h"
#include "formats/base/crc32c.h"
#include "formats/codec.h"
#include "formats/wire/convert.h"

namespace ckptd {

namespace fb = ckpt::fb;

inline constexpr ckpt::RunId kTestRun = 7;

template <typename BodyT>
fb::RecordT make_record(BodyT body) {
  fb::RecordT record;
  record.body.Set(std::move(body));
  return record;
}

inline fb::RecordT store_opened(uint64_t low = 11) {
  fb::StoreOpenedT body;
  body.store = ckpt::wire::to_fb({.low = low, .high = 12});
  return make_record(std::move(body));
}
inline fb::RecordT run_created(const std::string& name = "tiny", ckpt::RunId run = kTestRun,
                               std::string metadata = R"({"hf_config": {"layers": 2}})") {
  fb::RunCreatedT body;
  body.run = run;
  body.name = name;
  body.uid = 1000;
  body.time_ns = 1'700'000'000'123'000'000;
  body.metadata = std::move(metadata);
  return make_record(std::move(body));
}
inline fb::RecordT units_registered(const std::vector<ckpt::UnitSpec>& units,
                                    ckpt::UnitId first = 0, ckpt::RunId run = kTestRun) {
  fb::UnitsRegisteredT body;
  body.run = run;
  for (size_t i = 0; i < units.size(); ++i) {
    const auto id = static_cast<ckpt::UnitId>(first + i);
    body.units.push_back(std::make_unique<fb::UnitT>(ckpt::wire::to_fb(units[i], id)));
  }
  return make_record(std::move(body));
}
inline fb::RecordT lineage_opened(ckpt::LineageId lineage, ckpt::LineageId parent,
                                  ckpt::Step fork_step, ckpt::RunId run = kTestRun) {
  fb::LineageOpenedT body;
  body.run = run;
  body.lineage = lineage;
  body.parent = parent;
  body.fork_step = fork_step;
  return make_record(std::move(body));
}
inline fb::RecordT epoch_opened(ckpt::Epoch epoch, ckpt::RunId run = kTestRun) {
  fb::EpochOpenedT body;
  body.run = run;
  body.epoch = epoch;
  return make_record(std::move(body));
}
inline fb::RecordT commit_damaged(ViewPoint point, const std::string& reason,
                                  ckpt::RunId run = kTestRun) {
  fb::CommitDamagedT body;
  body.run = run;
  body.lineage = point.lineage;
  body.step = point.step;
  body.reason = reason;
  return make_record(std::move(body));
}
inline fb::RecordT deleted(ViewPoint point, const std::string& reason,
                           std::vector<ckpt::UnitId> kept = {}, bool kept_tokens = false,
                           ckpt::RunId run = kTestRun) {
  fb::DeletedT body;
  body.kept = std::move(kept);
  body.kept_tokens = kept_tokens;
  body.run = run;
  body.lineage = point.lineage;
  body.step = point.step;
  body.reason = reason;
  return make_record(std::move(body));
}
inline fb::RecordT tagged(ViewPoint point, const std::string& tag, ckpt::RunId run = kTestRun) {
  fb::TaggedT body;
  body.run = run;
  body.lineage = point.lineage;
  body.step = point.step;
  body.tag = tag;
  return make_record(std::move(body));
}
inline fb::RecordT untagged(const std::string& tag, ckpt::RunId run = kTestRun) {
  fb::UntaggedT body;
  body.run = run;
  body.tag = tag;
  return make_record(std::move(body));
}

inline fb::RecordT snapshot_refused(ViewPoint point, std::vector<fb::Alarm> alarms,
                                    uint32_t attempt = 0, ckpt::RunId run = kTestRun) {
  fb::SnapshotRefusedT body;
  body.run = run;
  body.lineage = point.lineage;
  body.epoch = 1;
  body.step = point.step;
  body.attempt = attempt;
  body.time_ns = 1'700'000'000'000'000'000 + point.step * 1'000'000'000;
  body.alarms = std::move(alarms);
  return make_record(std::move(body));
}

// Bytes of a unit at a commit, small enough for memory. Some stretches are compressible, others
// are noise.
inline std::vector<std::byte> unit_bytes(const ckpt::UnitSpec& spec, ViewPoint point) {
  std::vector<std::byte> bytes(spec.bytes);
  uint64_t state = point.step * 1000 + point.lineage * 77 + spec.bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t mask = i / 16'384 % 3 == 2 ? 0xff : 0x1f;
    bytes[i] = static_cast<std::byte>(state >> 56 & mask);
  }
  return bytes;
}

struct CommitSpec {
  ViewPoint point;
  std::vector<ckpt::UnitId> units;
  bool full = false;
  uint64_t pieces = 2;  // fragments of each unit
  ckpt::Epoch epoch = 1;
  uint32_t attempt = 0;
  std::vector<fb::ExpertTokens> tokens = {};
  std::vector<fb::ExpertTokens> lost = {};
  std::vector<fb::Alarm> alarms = {};
  std::map<std::string, double> metrics = {};  // in addition to the loss
  std::optional<uint64_t> place = {};          // position in the segment; default: by the step
  std::vector<ckpt::UnitId> grown = {};        // of `units`: by which the run grows
};
// A commit with one extent that holds all fragments in order.
inline fb::RecordT committed(const CommitSpec& spec, const std::vector<ckpt::UnitSpec>& units,
                             ckpt::RunId run = kTestRun) {
  fb::CommittedT body;
  body.run = run;
  body.lineage = spec.point.lineage;
  body.step = spec.point.step;
  body.epoch = spec.epoch;
  body.attempt = spec.attempt;
  body.time_ns = 1'700'000'000'000'000'000 + spec.point.step * 1'000'000'000;
  body.full = spec.full;
  uint64_t at = 0;
  for (const ckpt::UnitId unit : spec.units) {
    const auto bytes = unit_bytes(units[unit], spec.point);
    const uint64_t piece = (bytes.size() + spec.pieces - 1) / spec.pieces;
    for (uint64_t offset = 0; offset < bytes.size(); offset += piece) {
      const uint64_t length = std::min<uint64_t>(piece, bytes.size() - offset);
      const uint32_t crc = ckpt::base::crc32c(ckpt::ByteView(bytes).subspan(offset, length));
      body.fragments.emplace_back(unit, 0u, offset, length, at, crc, 0u);
      at += length;
    }
  }
  auto extent = std::make_unique<fb::ExtentT>();
  extent->segment = spec.point.lineage;
  extent->offset = 8192 * (1 + spec.place.value_or(spec.point.step));
  extent->header_bytes = 4096;
  extent->payload_bytes = at;
  body.extents.push_back(std::move(extent));
  body.metrics.push_back(std::make_unique<fb::MetricT>());
  body.metrics.back()->name = "loss";
  body.metrics.back()->value = 1.0 / static_cast<double>(1 + spec.point.step);
  for (const auto& [name, value] : spec.metrics) {
    body.metrics.push_back(std::make_unique<fb::MetricT>());
    body.metrics.back()->name = name;
    body.metrics.back()->value = value;
  }
  body.expert_tokens = spec.tokens;
  body.expert_lost = spec.lost;
  body.alarms = spec.alarms;
  body.alarms_left_out = static_cast<uint32_t>(spec.alarms.size() / 2);
  for (const ckpt::UnitId unit : spec.grown) {
    body.grown.push_back(std::make_unique<fb::UnitT>(ckpt::wire::to_fb(units[unit], unit)));
  }
  return make_record(std::move(body));
}

// A fragment of a commit with its entries in the tables `encoded` and `bases` of the record.
struct CommitPiece {
  fb::Fragment fragment;
  std::optional<fb::Encoded> encoded;
  std::optional<fb::Base> base;
  // Bytes on disk of the fragment, and of its base.
  uint64_t stored_bytes() const { return encoded ? encoded->bytes() : fragment.length(); }
  uint64_t base_bytes() const {
    return base->codec() == 0 ? fragment.length() : base->encoded_bytes();
  }
};
inline std::vector<CommitPiece> pieces_of(const fb::CommittedT& commit) {
  std::vector<CommitPiece> pieces;
  ckpt::EncodedFragments encoded(commit.encoded);
  ckpt::BasesOfFragments bases(commit.bases);
  for (const fb::Fragment& fragment : commit.fragments) {
    pieces.push_back({fragment, encoded.next(), bases.next()});
  }
  return pieces;
}
inline void put_pieces(fb::CommittedT& commit, const std::vector<CommitPiece>& pieces) {
  commit.fragments.clear();
  commit.encoded.clear();
  commit.bases.clear();
  for (const CommitPiece& piece : pieces) {
    const auto number = static_cast<uint32_t>(commit.fragments.size());
    commit.fragments.push_back(piece.fragment);
    if (piece.encoded) {
      commit.encoded.emplace_back(number, piece.encoded->crc32c(), piece.encoded->bytes());
    }
    if (!piece.base) continue;
    const fb::Base& base = *piece.base;
    commit.bases.emplace_back(number, base.extent(), base.payload_offset(), base.crc32c(),
                              base.codec(), base.encoded_bytes(), base.encoded_crc32c(),
                              base.deltas());
  }
}

// "layers.0.experts.0.weights", "layers.0.experts.0.optimizer", ... and "trainer" last.
inline std::vector<ckpt::UnitSpec> test_units(uint32_t layers, uint32_t experts) {
  std::vector<ckpt::UnitSpec> units;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    for (uint32_t expert = 0; expert < experts; ++expert) {
      for (const auto part : {ckpt::UnitPart::kWeights, ckpt::UnitPart::kOptimizer}) {
        ckpt::UnitSpec unit;
        unit.name =
            fmt::format("layers.{}.experts.{}.{}", layer, expert, ckpt::unit_part_name(part));
        unit.layer = layer;
        unit.expert = expert;
        unit.part = part;
        unit.bytes = 64 + 4 * units.size();
        unit.tensors.push_back({"w." + unit.name, ckpt::DType::kF32, {unit.bytes / 4}, 0});
        units.push_back(std::move(unit));
      }
    }
  }
  ckpt::UnitSpec trainer;
  trainer.name = "trainer";
  trainer.bytes = 33;
  units.push_back(std::move(trainer));
  return units;
}

inline std::vector<ckpt::UnitId> all_units(const std::vector<ckpt::UnitSpec>& units) {
  std::vector<ckpt::UnitId> ids(units.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<ckpt::UnitId>(i);
  return ids;
}

// Applies records one after another, numbered from 1.
inline void apply_all(Catalog& catalog, const std::vector<fb::RecordT>& records) {
  for (size_t i = 0; i < records.size(); ++i) {
    const Status applied = catalog.apply(i + 1, records[i]);
    ASSERT_TRUE(applied.ok()) << "record " << i + 1 << ": " << applied.error().message;
  }
}

}  // namespace ckptd
