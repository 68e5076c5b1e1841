#include "bench/service/gpu/state_sink.h"

#include <chrono>

#include "trainer/device/cuda_device.h"

namespace bench::gpu {

using ckpt::ErrorCode;
using ckpt::make_error;
using moetrain::ExpertStamps;
using moetrain::MemoryPiece;
using moetrain::Model;
using moetrain::ParameterPart;
using moetrain::StateMemory;
using moetrain::StateUnit;
using moetrain::WeightState;

namespace {

// Memory pieces of a model's units. Units in host memory point into dummy buffers of this class.
class Layout {
 public:
  Layout(const std::vector<StateUnit>& units, Model& model)
      : units_(units),
        trainer_unit_(units[moetrain::kTrainerUnit].bytes),
        stamps_({model.config().layers, model.config().experts}),
        memory_(units, model, trainer_unit_, stamps_) {
    for (const ParameterPart& part : model.parts()) {
      for (const uint32_t unit : memory_.units_of(*part.state)) held_.insert(unit);
    }
  }

  const StateMemory& memory() const { return memory_; }
  // Calls `take` for every piece on the device, by unit and ascending offset.
  template <typename Take>
  void for_each_piece(const Take& take) const {
    for (const uint32_t unit : held_) {
      for (const MemoryPiece& piece : memory_.pieces(unit, 0, units_[unit].bytes)) {
        if (!piece.on_host) take(unit, piece);
      }
    }
  }

 private:
  const std::vector<StateUnit>& units_;
  std::vector<std::byte> trainer_unit_;
  ExpertStamps stamps_;
  StateMemory memory_;
  std::set<uint32_t> held_;
};

// Adds the time of its scope.
class Timed {
 public:
  explicit Timed(double& seconds) : seconds_(seconds) {}
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  ~Timed() { seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace

Result<std::unique_ptr<StateSink>> StateSink::open(Model& model, const Options& options) {
  std::unique_ptr<StateSink> sink(new StateSink(model, options));
  CKPT_TRY(sink->prepare());
  return sink;
}

Status StateSink::prepare() {
  units_ = moetrain::state_units(model_.config());
  const Layout layout(units_, model_);
  layout.for_each_piece([&](uint32_t unit, const MemoryPiece& piece) {
    pieces_.push_back({unit, piece.offset, piece.bytes.data(), piece.bytes.size()});
    bytes_ += piece.bytes.size();
  });
  for (const ParameterPart& part : model_.parts()) {
    const auto units = layout.memory().units_of(*part.state);
    units_of_[part.state].assign(units.begin(), units.end());
  }
  // Up to half of a slab stays unused: a place that does not fit the rest goes into the next slab.
  const auto slabs = static_cast<uint32_t>(bytes_ / (options_.slab_bytes / 2) + 2);
  CKPT_ASSIGN(sink_, make_sink(options_.slab_bytes, slabs));
  arena_ = std::make_unique<ckpt::lib::PinnedArena>(handle(*sink_));
  CKPT_ASSIGN(stager_,
              ckpt::lib::Stager::open(handle(*sink_), *arena_,
                                      {.device = moetrain::cuda_queue(model_.device()).device(),
                                       .gather_bytes = options_.gather_bytes,
                                       .chunk_bytes = options_.chunk_bytes,
                                       .ahead_bytes = options_.ahead_bytes,
                                       .direct_bytes = options_.direct_bytes,
                                       .timeout_ms = options_.timeout_ms}));
  moetrain::set_while_waiting(model_.device(), [this] { advance(); });
  return {};
}

StateSink::~StateSink() {
  moetrain::set_while_waiting(model_.device(), {});
  moetrain::call_at_next_wait(model_.device(), {});
}

Status StateSink::stage() {
  CKPT_TRY(drain());
  const Timed timed(host_seconds_.stage);
  snapshot_ = begin_snapshot(*sink_);
  waited_for_.clear();
  to_be_staged_ = true;
  moetrain::call_at_next_wait(model_.device(), [this] { stage_now(); });
  return {};
}

void StateSink::stage_now() {
  if (!std::exchange(to_be_staged_, false)) return;
  const Timed timed(host_seconds_.stage);
  staged_ =
      stager_->stage(handle(snapshot_), pieces_, moetrain::cuda_queue(model_.device()).stream());
}

void StateSink::advance() {
  if (!stager_->is_active()) return;
  const Timed timed(host_seconds_.advance);
  stager_->advance();
}

void StateSink::before_write(const WeightState& state) {
  stage_now();
  const Timed timed(host_seconds_.before_write);
  auto& queue = moetrain::cuda_queue(model_.device());
  for (const uint32_t unit : units_of_.at(&state)) {
    if (!waited_for_.insert(unit).second) continue;
    const Status held = stager_->wait_gathered(unit, queue.stream());
    if (!held.ok()) queue.fail(held.error().message);
  }
}

Status StateSink::drain() {
  stage_now();
  const Timed timed(host_seconds_.drain);
  CKPT_TRY(std::exchange(staged_, {}));
  return stager_->drain(options_.timeout_ms);
}

// Restores the part of each destination that this sink holds, and adds its bytes to `restored`.
Status StateSink::restore_pieces(const std::vector<ckpt_cuda_destination>& destinations,
                                 moetrain::Device& device, std::vector<uint64_t>& restored) {
  if (!snapshot_.ended) {
    return make_error(ErrorCode::kFailedPrecondition, "restore: nothing was staged and drained");
  }
  auto& queue = moetrain::cuda_queue(device);
  CKPT_ASSIGN(const auto buffers,
              ckpt::lib::RestoreBuffers::make(queue.device(), options_.timeout_ms));
  ckpt::lib::Restorer restorer(
      handle(*sink_), *arena_, *buffers,
      {.device = queue.device(), .timeout_ms = options_.timeout_ms, .cufile = {}});
  SinkRestore windows = begin_restore(snapshot_, destinations);
  CKPT_TRY(restorer.run(handle(windows), destinations, queue.stream()));
  if (windows.mismatches != 0) {
    return make_error(ErrorCode::kCorrupt, "restore: {} pieces do not have their CRC",
                      windows.mismatches);
  }
  for (const SinkRestore::Window& window : windows.windows) {
    for (const ckpt_restore_piece& piece : window.pieces) restored[piece.range] += piece.length;
  }
  return {};
}

Status StateSink::restore_from(const std::vector<StateSink*>& sinks, Model& into) {
  const std::vector<StateUnit> units = moetrain::state_units(into.config());
  const Layout layout(units, into);
  std::vector<ckpt_cuda_destination> missing;
  layout.for_each_piece([&](uint32_t unit, const MemoryPiece& piece) {
    missing.push_back({unit, piece.offset, piece.bytes.data(), piece.bytes.size()});
  });
  // A piece that several ranks hold is restored from the first of them.
  for (StateSink* const sink : sinks) {
    std::vector<uint64_t> restored(missing.size());
    CKPT_TRY(sink->restore_pieces(missing, into.device(), restored));
    std::vector<ckpt_cuda_destination> still_missing;
    for (size_t i = 0; i < missing.size(); ++i) {
      if (restored[i] != missing[i].length) still_missing.push_back(missing[i]);
    }
    missing = std::move(still_missing);
  }
  if (!missing.empty()) {
    const ckpt_cuda_destination& first = missing.front();
    return make_error(
        ErrorCode::kNotFound,
        "restore: {} pieces are in none of {} snapshots, unit {} bytes [{}, {}) first",
        missing.size(), sinks.size(), units[first.unit].name, first.offset,
        first.offset + first.length);
  }
  into.parameters_changed();
  return {};
}

}  // namespace bench::gpu
