#include "ckptd/catalog/values.h"

#include "ckptd/catalog/verified.h"

namespace ckptd::values {
namespace {

values::ScrubPass encode_pass(const ckptd::ScrubPass& pass) {
  return {pass.number,
          pass.began_ns,
          pass.ended_ns,
          pass.bytes_per_second,
          pass.checked_bytes,
          pass.commits,
          {pass.cursor.run, pass.cursor.sequence, pass.cursor.extent, pass.cursor.extents}};
}

ckptd::ScrubPass decode_pass(const values::ScrubPass& pass) {
  const values::ScrubCursor& cursor = pass.cursor();
  return {.number = pass.number(),
          .began_ns = pass.began_ns(),
          .ended_ns = pass.ended_ns(),
          .bytes_per_second = pass.bytes_per_second(),
          .checked_bytes = pass.checked_bytes(),
          .commits = pass.commits(),
          .cursor = {cursor.run(), cursor.sequence(), cursor.extent(), cursor.extents()}};
}

values::DamagedBytes encode_place(const ckptd::DamagedBytes& place) {
  return {place.run,     place.extent_offset,     place.offset, place.bytes, place.written_by_step,
          place.segment, place.written_by_lineage};
}

ckptd::DamagedBytes decode_place(const values::DamagedBytes* place) {
  if (place == nullptr) return {};
  return {.run = place->run(),
          .segment = place->segment(),
          .extent_offset = place->extent_offset(),
          .offset = place->offset(),
          .bytes = place->bytes(),
          .written_by_lineage = place->written_by_lineage(),
          .written_by_step = place->written_by_step()};
}

std::string text(const flatbuffers::String* value) { return value ? value->str() : ""; }

std::vector<TokenCount> encode_counts(const std::vector<ckpt::fb::ExpertTokens>& counts) {
  std::vector<TokenCount> list;
  list.reserve(counts.size());
  for (const ckpt::fb::ExpertTokens& count : counts) {
    list.emplace_back(count.layer(), count.expert(), count.tokens());
  }
  return list;
}

std::vector<ckpt::fb::ExpertTokens> decode_counts(
    const flatbuffers::Vector<const TokenCount*>* list) {
  std::vector<ckpt::fb::ExpertTokens> counts;
  if (list == nullptr) return counts;
  counts.reserve(list->size());
  for (const TokenCount* count : *list) {
    counts.emplace_back(count->layer(), count->expert(), count->tokens());
  }
  return counts;
}

}  // namespace

std::string encode(const RunCounters& counters) {
  flatbuffers::FlatBufferBuilder builder;
  const auto reason = builder.CreateString(counters.removed_reason);
  return finish(builder,
                CreateRunState(builder, counters.current_lineage, counters.last_epoch,
                               counters.commits, counters.bytes, counters.removed_ns, reason));
}

std::optional<RunCounters> decode_run_counters(std::string_view value) {
  const Verified<RunState> state(value);
  if (!state) return std::nullopt;
  const auto* reason = state->removed_reason();
  return RunCounters{state->current_lineage(), state->last_epoch(),
                     state->commits(),         state->bytes(),
                     state->removed_ns(),      reason != nullptr ? reason->str() : ""};
}

std::string encode(const ckpt::ExpertTokenCounts& counts) {
  const auto tokens = encode_counts(ckpt::tokens_to_fb(counts));
  const auto lost = encode_counts(ckpt::lost_to_fb(counts));
  flatbuffers::FlatBufferBuilder builder;
  return finish(builder, CreateTokenCountsDirect(builder, &tokens, lost.empty() ? nullptr : &lost));
}

std::optional<ckpt::ExpertTokenCounts> decode_token_counts(std::string_view value) {
  const Verified<TokenCounts> table(value);
  if (!table) return std::nullopt;
  auto counts =
      ckpt::expert_token_counts(decode_counts(table->counts()), decode_counts(table->lost()));
  if (!counts.ok()) return std::nullopt;
  return std::move(counts).value();
}

std::string encode(const UnitCrcs& sums) {
  std::vector<values::UnitSum> list;
  list.reserve(sums.size());
  for (const auto& [unit, crc] : sums) list.emplace_back(unit, crc);
  flatbuffers::FlatBufferBuilder builder;
  return finish(builder, CreateUnitSumsDirect(builder, &list));
}

std::optional<UnitCrcs> decode_unit_sums(std::string_view value) {
  const Verified<UnitSums> table(value);
  if (!table) return std::nullopt;
  UnitCrcs sums;
  if (table->units() == nullptr) return sums;
  sums.reserve(table->units()->size());
  for (const values::UnitSum* sum : *table->units()) sums.emplace_back(sum->unit(), sum->crc32c());
  return sums;
}

std::string encode(const std::vector<SpaceRange>& ranges) {
  std::vector<Range> list;
  list.reserve(ranges.size());
  for (const SpaceRange& range : ranges) {
    list.emplace_back(range.segment, range.offset, range.bytes);
  }
  flatbuffers::FlatBufferBuilder builder;
  return finish(builder, CreateRangesDirect(builder, &list));
}

std::optional<std::vector<SpaceRange>> decode_ranges(std::string_view value) {
  const Verified<Ranges> table(value);
  if (!table) return std::nullopt;
  std::vector<SpaceRange> ranges;
  if (table->ranges() == nullptr) return ranges;
  ranges.reserve(table->ranges()->size());
  for (const Range* range : *table->ranges()) {
    ranges.push_back({range->segment(), range->offset(), range->bytes()});
  }
  return ranges;
}

std::string encode(const ckptd::ScrubState& state) {
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<ScrubDamage>> damages;
  damages.reserve(state.damages.size());
  for (const ckptd::ScrubDamage& damage : state.damages) {
    const DamagedBytes place = encode_place(damage.place);
    damages.push_back(CreateScrubDamageDirect(
        builder, damage.run.c_str(), damage.lineage, damage.step, damage.unit.c_str(),
        damage.reason.c_str(), damage.found_ns, damage.pass, &place));
  }
  const ScrubPass last = encode_pass(state.last);
  const ckptd::ScrubPass under_way = state.pass.value_or(ckptd::ScrubPass());
  const ScrubPass pass = encode_pass(under_way);
  return finish(builder,
                CreateScrubStateDirect(builder, &last, state.pass ? &pass : nullptr,
                                       state.read_back_sequence, &damages, state.damages_left_out,
                                       state.last.unchecked, state.last.unchecked_reason.c_str(),
                                       under_way.unchecked, under_way.unchecked_reason.c_str()));
}

std::optional<ckptd::ScrubState> decode_scrub_state(std::string_view value) {
  const Verified<ScrubState> table(value);
  if (!table) return std::nullopt;
  ckptd::ScrubState state;
  if (table->last() != nullptr) state.last = decode_pass(*table->last());
  state.last.unchecked = table->last_unchecked();
  state.last.unchecked_reason = text(table->last_unchecked_reason());
  if (table->pass() != nullptr) {
    state.pass = decode_pass(*table->pass());
    state.pass->unchecked = table->pass_unchecked();
    state.pass->unchecked_reason = text(table->pass_unchecked_reason());
  }
  state.read_back_sequence = table->read_back_sequence();
  state.damages_left_out = table->damages_left_out();
  if (table->damages() == nullptr) return state;
  state.damages.reserve(table->damages()->size());
  for (const ScrubDamage* damage : *table->damages()) {
    state.damages.push_back({text(damage->run()), damage->lineage(), damage->step(),
                             text(damage->unit()), text(damage->reason()), damage->found_ns(),
                             damage->pass(), decode_place(damage->place())});
  }
  return state;
}

std::string encode(const ckpt::fb::RecordT& record) {
  return std::string(ckpt::as_text(ckpt::encode_record(record)));
}

std::optional<ckpt::fb::RecordT> decode_record(std::string_view value) {
  auto record = ckpt::decode_record(ckpt::as_bytes(value));
  if (!record.ok()) return std::nullopt;
  return std::move(record).value();
}

}  // namespace ckptd::values
