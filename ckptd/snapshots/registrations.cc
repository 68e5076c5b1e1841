#include "ckptd/snapshots/registrations.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "formats/codec.h"

namespace ckptd {

namespace fb = ckpt::fb;
using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

// Registrations keep no Auto.
CodecChoice choice_of(fb::UnitCodec asked, CodecChoice by_default) {
  switch (asked) {
    case fb::UnitCodec::None:
      return CodecChoice::kNone;
    case fb::UnitCodec::Zstd:
      return CodecChoice::kZstd;
    case fb::UnitCodec::Delta:
      return CodecChoice::kDelta;
    case fb::UnitCodec::Auto:
    case fb::UnitCodec::Default:
      break;
  }
  return by_default;
}

}  // namespace

ckpt::Status check_unit_codecs(const fb::RegisterUnitsT& message) {
  if (message.codecs.empty()) return {};
  if (message.codecs.size() != message.units.size()) {
    return make_error(ErrorCode::kInvalidArgument, "codecs of {} units, but {} units",
                      message.codecs.size(), message.units.size());
  }
  for (size_t i = 0; i < message.codecs.size(); ++i) {
    if (message.codecs[i] <= fb::UnitCodec::MAX) continue;
    return make_error(ErrorCode::kInvalidArgument, "unit {}: no such codec: {}",
                      message.units[i]->name, static_cast<int>(message.codecs[i]));
  }
  return {};
}

ckpt::Status check_grown_requests(const fb::RegisterUnitsT& message) {
  const auto growth = read_growth(message.grown);
  return growth.ok() ? ckpt::Status() : growth.error();
}

ckpt::Status check_no_auto_codec(const fb::RegisterUnitsT& message) {
  const auto found = std::ranges::find(message.codecs, fb::UnitCodec::Auto);
  if (found == message.codecs.end()) return {};
  const auto unit = static_cast<size_t>(found - message.codecs.begin());
  return make_error(ErrorCode::kInvalidArgument, "unit {}: {}", message.units[unit]->name,
                    ckpt::kAutoCodecRemoved);
}

void Registrations::note(const std::string& run, const fb::RegisterUnitsT& message) {
  flags_.note(run, message);
  if (const auto growth = read_growth(message.grown); growth.ok()) note_growth(run, *growth);
  if (message.codecs.empty()) return;
  std::vector<fb::UnitCodec> codecs = message.codecs;
  std::ranges::replace(codecs, fb::UnitCodec::Auto, fb::UnitCodec::None);
  const auto known = codecs_.find(run);
  const bool reported = known != codecs_.end() && known->second == codecs;  // by another rank
  if (codecs != message.codecs && !reported) {
    spdlog::warn("run {}: {}; the run continues with none", run, ckpt::kAutoCodecRemoved);
  }
  codecs_[run] = std::move(codecs);
}

void Registrations::note_growth(const std::string& run, const Growth& growth) {
  for (size_t i = 0; i < growth.units.size(); ++i) {
    const auto unit = static_cast<ckpt::UnitId>(growth.first + i);
    grown_[run][unit] = {growth.codecs[i], growth.flags[i]};
  }
}

const Registrations::Grown* Registrations::find_grown(const std::string& run,
                                                      ckpt::UnitId unit) const {
  const auto of_run = grown_.find(run);
  if (of_run == grown_.end()) return nullptr;
  const auto grown = of_run->second.find(unit);
  return grown == of_run->second.end() ? nullptr : &grown->second;
}

void Registrations::forget(const std::string& run) {
  grown_.erase(run);
  flags_.forget(run);
  codecs_.erase(run);
}

EncodePlan Registrations::encode_plan(const std::string& run, const UnitSpecList& units,
                                      CodecChoice by_default) const {
  const auto asked = codecs_.find(run);
  if (asked == codecs_.end() && !grown_.contains(run)) {
    if (by_default == CodecChoice::kNone) return nullptr;
    return encode_all(units, by_default == CodecChoice::kDelta);
  }
  std::vector<CodecChoice> choices;
  choices.reserve(units->size());
  for (ckpt::UnitId unit = 0; unit < units->size(); ++unit) {
    fb::UnitCodec codec = fb::UnitCodec::Default;
    if (asked != codecs_.end() && unit < asked->second.size()) codec = asked->second[unit];
    if (const Grown* grown = find_grown(run, unit)) codec = grown->codec;
    choices.push_back(choice_of(codec, by_default));
  }
  return encode_chosen(units, choices);
}

}  // namespace ckptd
