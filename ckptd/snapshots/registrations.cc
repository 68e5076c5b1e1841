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

ckpt::Status check_no_auto_codec(const fb::RegisterUnitsT& message) {
  const auto found = std::ranges::find(message.codecs, fb::UnitCodec::Auto);
  if (found == message.codecs.end()) return {};
  const auto unit = static_cast<size_t>(found - message.codecs.begin());
  return make_error(ErrorCode::kInvalidArgument, "unit {}: {}", message.units[unit]->name,
                    ckpt::kAutoCodecRemoved);
}

void Registrations::note(const std::string& run, const fb::RegisterUnitsT& message) {
  flags_.note(run, message);
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

void Registrations::forget(const std::string& run) {
  flags_.forget(run);
  codecs_.erase(run);
}

EncodePlan Registrations::encode_plan(const std::string& run, const UnitSpecList& units,
                                      CodecChoice by_default) const {
  const auto asked = codecs_.find(run);
  if (asked == codecs_.end()) {
    if (by_default == CodecChoice::kNone) return nullptr;
    return encode_all(units, by_default == CodecChoice::kDelta);
  }
  std::vector<CodecChoice> choices;
  choices.reserve(units->size());
  for (size_t unit = 0; unit < units->size(); ++unit) {
    choices.push_back(choice_of(asked->second.at(unit), by_default));
  }
  return encode_chosen(units, choices);
}

}  // namespace ckptd
