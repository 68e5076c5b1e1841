// Codecs: chooses which units of a snapshot to encode. Keeps trainers' requests by run;
// codec/run_codecs.h decides `auto` by figures that are measured on the executor.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "ckptd/daemon_impl.h"

namespace ckptd {

namespace {

CodecChoice choice_of(fb::UnitCodec asked, CodecChoice by_default) {
  switch (asked) {
    case fb::UnitCodec::None:
      return CodecChoice::kNone;
    case fb::UnitCodec::Zstd:
      return CodecChoice::kZstd;
    case fb::UnitCodec::Auto:
      return CodecChoice::kAuto;
    case fb::UnitCodec::Delta:
      return CodecChoice::kDelta;
    case fb::UnitCodec::Default:
      break;
  }
  return by_default;
}

// Units of a snapshot that are written to disk.
std::vector<ckpt::UnitId> written_units(const fb::BeginSnapshotT& message) {
  const std::set<ckpt::UnitId> in_memory(message.memory_units.begin(), message.memory_units.end());
  std::vector<ckpt::UnitId> units;
  units.reserve(message.units.size());
  std::copy_if(message.units.begin(), message.units.end(), std::back_inserter(units),
               [&in_memory](ckpt::UnitId unit) { return !in_memory.contains(unit); });
  return units;
}

std::string figures_text(const RunCodecs::Kind& kind, double disk) {
  if (!kind.figures) return "";
  return fmt::format(
      ": {:.2f} of the bytes are left, at {:.0f} MB/s a thread; the disk takes {:.0f}",
      kind.figures->ratio, kind.figures->bytes_per_second / 1e6, disk / 1e6);
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

// Records the codecs that a trainer requests: the last registration with codecs counts. They are
// not part of the run: trainers register again with the next daemon.
void Daemon::Impl::note_registration(const std::string& run, const fb::RegisterUnitsT& message) {
  unit_flags.note(run, message);
  if (message.codecs.empty()) return;
  auto& asked = unit_codecs[run];
  if (asked == message.codecs) return;
  asked = message.codecs;
  run_codecs.erase(run);  // figures of the units must be measured anew
}

void Daemon::Impl::forget_registration(const std::string& run) {
  unit_flags.forget(run);
  unit_codecs.erase(run);
  run_codecs.erase(run);
}

// Once per snapshot, when its first member begins: all its slabs are treated alike.
void Daemon::Impl::choose_codecs(const Session& session, const SnapshotKey& key,
                                 const fb::BeginSnapshotT& message) {
  OpenSnapshotState& open = open_snapshots.at(key);
  if (std::exchange(open.codecs_chosen, true)) return;
  const auto asked = unit_codecs.find(open.run_name);
  const bool same_for_all = asked == unit_codecs.end();
  if (same_for_all && options.codec == CodecChoice::kNone) return;
  const UnitSpecList units = catalog->units(key.run).value();
  const bool deltas = options.codec == CodecChoice::kDelta;
  if (same_for_all && (deltas || options.codec == CodecChoice::kZstd)) {
    open.codecs.plan = encode_all(units, deltas);
    return;
  }
  std::shared_ptr<RunCodecs>& codecs = run_codecs[open.run_name];
  if (codecs == nullptr) {
    std::vector<CodecChoice> choices(same_for_all ? 1 : units->size(), options.codec);
    for (size_t unit = 0; !same_for_all && unit < choices.size(); ++unit) {
      choices[unit] = choice_of(asked->second.at(unit), options.codec);
    }
    codecs = std::make_shared<RunCodecs>(units, std::move(choices));
  }
  const Persist::Stats stats = persist->stats();
  open.run_codecs = codecs;
  open.codecs = codecs->begin(written_units(message),
                              {.disk_bytes_per_second = stats.disk_bytes_per_second,
                               .queued_bytes = stats.bytes_queued + stats.bytes_in_flight,
                               .threads = options.encode_threads,
                               .slab_bytes = staging->layout(*session.arena).slab_bytes});
  for (const uint32_t changed : open.codecs.changed) {
    ++counters.codec_changes;
    const RunCodecs::Kind& kind = codecs->kind(changed);
    spdlog::info("run {} step {}: units {} are {} from here on{}", open.run_name, key.step,
                 kind.name, kind.encoded ? "encoded" : "written as they are",
                 figures_text(kind, stats.disk_bytes_per_second));
  }
}

// Usually null: kinds are measured now and then, each in one slab.
std::shared_ptr<SlabSampler> Daemon::Impl::sample_codecs(const SnapshotKey& key,
                                                         const StagedSlab& slab) {
  OpenSnapshotState& open = open_snapshots.at(key);
  if (open.codecs.samples.empty()) return nullptr;
  std::erase_if(codec_samplers, [](const auto& sampler) { return sampler.expired(); });
  if (codec_samplers.size() >= limits::kCodecSamplersMax) return nullptr;
  const UnitKinds& kinds = open.run_codecs->kinds();
  std::set<uint32_t> here;
  for (const ckpt::ExtentFragment& fragment : slab.fragments()) {
    const uint32_t kind = kinds.of(fragment.unit);
    if (open.codecs.samples.erase(kind) > 0) here.insert(kind);
  }
  if (here.empty()) return nullptr;
  auto sampler = std::make_shared<SlabSampler>(slab.fragments(), kinds, here);
  codec_samplers.push_back(sampler);
  return sampler;
}

PayloadObserver with_sampler(PayloadObserver observer, std::shared_ptr<SlabSampler> sampler) {
  if (sampler == nullptr) return observer;
  return
      [observer = std::move(observer), sampler = std::move(sampler)](
          const ckpt::ExtentFragment& fragment, ckpt::ByteView bytes, uint64_t from, uint64_t to) {
        if (observer) observer(fragment, bytes, from, to);
        sampler->look(fragment, bytes, to);
      };
}

// After the slab was written and checked: nothing waits for this.
void Daemon::Impl::measure_codecs(const SnapshotKey& key,
                                  const std::shared_ptr<SlabSampler>& sampler) {
  if (sampler == nullptr) return;
  counters.codec_sampled_bytes += sampler->bytes();
  measure_next_kind(open_snapshots.at(key).run_codecs, sampler);
}

// One kind at a time, so that other work of the thread need not wait for all of them.
void Daemon::Impl::measure_next_kind(const std::shared_ptr<RunCodecs>& codecs,
                                     const std::shared_ptr<SlabSampler>& sampler) {
  if (draining || sampler->bytes() == 0) return;
  const auto measured = std::make_shared<SlabSampler::Measured>();
  ++codec_samples_running;
  executor.run([measured, sampler, units = codecs->units(),
                stopwatch = options.stopwatch] { *measured = sampler->measure(units, stopwatch); },
               [this, codecs, sampler, measured] {
                 --codec_samples_running;
                 codecs->measured(measured->kind, measured->figures);
                 measure_next_kind(codecs, sampler);
               });
}

}  // namespace ckptd
