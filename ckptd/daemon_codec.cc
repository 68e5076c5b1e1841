// Codecs: chooses which units of a snapshot to encode, by the configuration and by the requests of
// trainers, which are kept by run.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ckptd/daemon_impl.h"
#include "formats/codec.h"

namespace ckptd {

namespace {

// note_registration() keeps no Auto.
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

Status check_unit_codecs(const fb::RegisterUnitsT& message) {
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

Status check_no_auto_codec(const fb::RegisterUnitsT& message) {
  const auto found = std::ranges::find(message.codecs, fb::UnitCodec::Auto);
  if (found == message.codecs.end()) return {};
  const auto unit = static_cast<size_t>(found - message.codecs.begin());
  return make_error(ErrorCode::kInvalidArgument, "unit {}: {}", message.units[unit]->name,
                    ckpt::kAutoCodecRemoved);
}

// Records the codecs that a trainer requests: the last registration with codecs counts. They are
// not part of the run: trainers register again with the next daemon. A training whose older libckpt
// asks for Auto goes on without compression: an upgrade of ckptd must not stop it.
void Daemon::Impl::note_registration(const std::string& run, const fb::RegisterUnitsT& message) {
  unit_flags.note(run, message);
  if (message.codecs.empty()) return;
  std::vector<fb::UnitCodec> codecs = message.codecs;
  std::ranges::replace(codecs, fb::UnitCodec::Auto, fb::UnitCodec::None);
  const auto known = unit_codecs.find(run);
  const bool told = known != unit_codecs.end() && known->second == codecs;  // by another rank
  if (codecs != message.codecs && !told) {
    spdlog::warn("run {}: {}; the run goes on with none", run, ckpt::kAutoCodecRemoved);
  }
  unit_codecs[run] = std::move(codecs);
}

void Daemon::Impl::forget_registration(const std::string& run) {
  unit_flags.forget(run);
  unit_codecs.erase(run);
}

// Once per snapshot, when its first member begins: all its slabs are treated alike.
void Daemon::Impl::choose_codecs(const SnapshotKey& key) {
  OpenSnapshotState& open = open_snapshots.at(key);
  if (std::exchange(open.codecs_chosen, true)) return;
  const auto asked = unit_codecs.find(open.run_name);
  const bool same_for_all = asked == unit_codecs.end();
  if (same_for_all && options.codec == CodecChoice::kNone) return;
  const UnitSpecList units = history.catalog().units(key.run).value();
  if (same_for_all) {
    open.encode_plan = encode_all(units, options.codec == CodecChoice::kDelta);
    return;
  }
  std::vector<CodecChoice> choices;
  choices.reserve(units->size());
  for (size_t unit = 0; unit < units->size(); ++unit) {
    choices.push_back(choice_of(asked->second.at(unit), options.codec));
  }
  open.encode_plan = encode_chosen(units, choices);
}

}  // namespace ckptd
