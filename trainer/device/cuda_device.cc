#include "trainer/device/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "kernels/cast.h"
#include "kernels/cuda/array.h"
#include "kernels/cuda/backoff.h"
#include "kernels/cuda/land.h"
#include "kernels/cuda/queue.h"
#include "kernels/embedding.h"
#include "kernels/sums.h"
#include "trainer/device/expert_groups.h"

namespace moetrain {

using ckpt::ErrorCode;
using ckpt::make_error;
using kernels::Bf16;
using kernels::CudaQueue;
using kernels::Write;

namespace {

// Large enough to grow seldom.
constexpr size_t kLandingBytesMin = 1u << 20;

int64_t count_of(const Tensor& tensor) { return static_cast<int64_t>(tensor.size()); }

// The part of the device that does not depend on Real.
class CudaDevice : public Device {
 public:
  CudaDevice(const CudaDeviceOptions& options, std::unique_ptr<kernels::CudaDeviceScope> current,
             std::unique_ptr<CudaQueue> queue)
      : options_(options), current_(std::move(current)), queue_(std::move(queue)) {}

  ~CudaDevice() override {
    CKPT_ASSERT_MSG(lent_.empty(), "a tensor outlives its device");
    queue_.reset();  // waits, with a bound: CUDA's free would wait without one
    free_spare();
  }

  CudaQueue& queue() { return *queue_; }
  void set_while_waiting(std::function<void()> call) { while_waiting_ = std::move(call); }
  void call_at_next_wait(const std::function<void()>& call) { at_next_wait_ = call; }
  Status prepare() {
    CKPT_ASSIGN(loss_, kernels::DeviceArray<kernels::CrossEntropySum>::make(1));
    return {};
  }

  std::string name() const override {
    return fmt::format("cuda:{} {}", options_.index,
                       options_.precision == Precision::kBf16 ? "bf16" : "fp32");
  }
  bool is_host() const override { return false; }
  Type grad_sum() const override { return Type::kFloat; }

  Status check_gate(int64_t experts, int64_t top_k) const override {
    if (experts <= kernels::kCudaGateExpertsMax && top_k <= kernels::kCudaGateTopKMax) return {};
    return make_error(ErrorCode::kInvalidArgument,
                      "device {}: {} experts with top_k {}, but a GPU routes among {} experts with"
                      " top_k {} at most",
                      name(), experts, top_k, kernels::kCudaGateExpertsMax,
                      kernels::kCudaGateTopKMax);
  }

  Status synchronize() override {
    if (at_next_wait_) std::exchange(at_next_wait_, {})();
    kernels::Backoff backoff;
    Status done = kernels::synchronize(*queue_, [&]() -> Status {
      if (backoff.waited() > std::chrono::milliseconds(options_.timeout_ms)) {
        (void)queue_->wait_at_most(0);  // the destructor does not wait a second time
        return make_error(ErrorCode::kDeadlineExceeded,
                          "device {}: what was queued is not done after {} ms", name(),
                          options_.timeout_ms);
      }
      if (while_waiting_) while_waiting_();
      backoff.pause();
      return {};
    });
    if (!out_of_memory_.empty()) {
      return make_error(ErrorCode::kResourceExhausted, "device {}: {}", name(),
                        std::exchange(out_of_memory_, {}));
    }
    return done;
  }

  // Freed memory is reused: CUDA's own free waits for the whole device, including snapshots being
  // staged. The queue is in order, so earlier work on the memory is done before later work.
  void* allocate(size_t bytes) override {
    const auto fits = spare_.lower_bound(bytes);
    if (fits != spare_.end() && fits->first / 2 <= bytes) {
      void* const at = fits->second;
      lent_[at] = fits->first;
      spare_.erase(fits);
      return at;
    }
    Result<void*> memory = kernels::cuda_allocate(bytes);
    if (!memory.ok() && !spare_.empty() && queue_->wait_at_most(options_.timeout_ms)) {
      free_spare();
      memory = kernels::cuda_allocate(bytes);
    }
    if (memory.ok()) {
      lent_[*memory] = bytes;
      return *memory;
    }
    // Also keeps later kernels from being launched with this null pointer.
    if (out_of_memory_.empty()) out_of_memory_ = memory.error().message;
    queue_->fail(memory.error().message);
    return nullptr;
  }
  void free(void* at) override {
    const auto lent = lent_.find(at);
    CKPT_ASSERT(lent != lent_.end());
    spare_.emplace(lent->second, at);
    lent_.erase(lent);
  }
  void upload(void* to, std::span<const std::byte> from) override {
    queue_->upload(to, from.data(), from.size());
  }
  Status download(std::span<std::byte> to, const void* from) override {
    // Copies into memory that survives an abandoned wait, and that needs no synchronous copy.
    if (landing_.empty() || landing_.back().size() < to.size()) {
      CKPT_ASSIGN(auto larger,
                  kernels::PinnedArray<std::byte>::make(std::max(2 * to.size(), kLandingBytesMin)));
      landing_.push_back(std::move(larger));
    }
    if (to.size() <= kernels::kLandBytesMax) {
      kernels::land(*queue_, landing_.back().data(), from, to.size());
    } else {
      kernels::copy(*queue_, landing_.back().data(), from, to.size());
    }
    CKPT_TRY(synchronize());
    std::memcpy(to.data(), landing_.back().data(), to.size());
    return {};
  }
  void zero(void* at, size_t bytes) override { kernels::zero(*queue_, at, bytes); }
  void copy(void* to, const void* from, size_t bytes) override {
    kernels::copy(*queue_, to, from, bytes);
  }
  void add(float* to, const float* from, size_t count) override {
    kernels::add(*queue_, static_cast<int64_t>(count), from, to);
  }

  void add_sum_of_squares(const float* x, size_t count, Tensor& sum) override {
    kernels::add_sum_of_squares(*queue_, static_cast<int64_t>(count), x, sum.as<double>());
  }
  void add_column_sums(int64_t rows, const Tensor& x, Tensor& sums) override {
    kernels::add_column_sums(*queue_, rows, count_of(sums), x.as<float>(), sums.as<double>());
  }

  void embedding_forward(int64_t width, const Tensor& tokens, const Tensor& table,
                         Tensor& out) override {
    kernels::embedding_forward(*queue_, count_of(tokens), width, tokens.as<int32_t>(),
                               table.as<float>(), out.as<float>());
  }
  void embedding_backward(int64_t width, const Tensor& tokens, const Tensor& dout,
                          Tensor& dtable) override {
    kernels::embedding_backward(*queue_, count_of(tokens), width, count_of(dtable) / width,
                                tokens.as<int32_t>(), dout.as<float>(), dtable.as<float>());
  }
  void rmsnorm_backward(const kernels::RmsNormShape& shape, const Tensor& dy, const Tensor& x,
                        const Tensor& scale, const Tensor& inverse_rms, Tensor& dx,
                        Tensor& dscale) override {
    kernels::rmsnorm_backward<float>(*queue_, shape, dy.as<float>(), x.as<float>(),
                                     scale.as<float>(), inverse_rms.as<float>(), dx.as<float>(),
                                     dscale.as<float>());
  }
  void gate_topk_forward(const kernels::GateShape& shape, Tensor& logits, Tensor& choice,
                         Tensor& weight) override {
    kernels::gate_topk_forward(*queue_, shape, logits.as<float>(), logits.as<float>(),
                               choice.as<int32_t>(), weight.as<float>());
  }
  void gate_topk_backward(const kernels::GateShape& shape, const Tensor& dweight,
                          const Tensor& dprobability, const Tensor& probabilities,
                          const Tensor& choice, const Tensor& weight, Tensor& dlogits) override {
    kernels::gate_topk_backward(*queue_, shape, dweight.as<float>(), dprobability.as<float>(),
                                probabilities.as<float>(), choice.as<int32_t>(), weight.as<float>(),
                                dlogits.as<float>());
  }
  void cross_entropy_forward(const kernels::CrossEntropyShape& shape, const Tensor& logits,
                             const Tensor& targets, Tensor& log_sum_exp) override {
    kernels::cross_entropy_forward(*queue_, shape, logits.as<float>(), targets.as<int32_t>(),
                                   log_sum_exp.as<float>(), loss_.data());
  }
  Result<kernels::CrossEntropySum> read_loss() override {
    kernels::CrossEntropySum loss;
    CKPT_TRY(download(std::as_writable_bytes(std::span(&loss, 1)), loss_.data()));
    return loss;
  }

 private:
  void free_spare() {
    for (const auto& [bytes, at] : spare_) kernels::cuda_free(at);
    spare_.clear();
  }

  std::map<void*, size_t> lent_;
  std::multimap<size_t, void*> spare_;

 protected:
  const CudaDeviceOptions options_;
  std::unique_ptr<kernels::CudaDeviceScope> current_;
  std::unique_ptr<CudaQueue> queue_;
  kernels::DeviceArray<kernels::CrossEntropySum> loss_;
  std::function<void()> while_waiting_;
  std::function<void()> at_next_wait_;
  // Each at least twice as large as the previous one, which is unused from then on: CUDA waits for
  // the whole device before it frees.
  std::vector<kernels::PinnedArray<std::byte>> landing_;
  std::string out_of_memory_;
};

// Real: type of the inputs and outputs of matrix products.
template <typename Real>
class CudaDeviceOf final : public CudaDevice {
 public:
  using CudaDevice::CudaDevice;
  Type flow() const override { return kTypeOf<Real>; }

  const Tensor& as_flow(Tensor& x, Tensor& room) override {
    if constexpr (std::is_same_v<Real, float>) {
      return x;
    } else {
      room.reshape(*this, flow(), x.size());
      kernels::cast(*queue_, count_of(x), x.as<float>(), room.as<Real>());
      return room;
    }
  }

  void rmsnorm_forward(const kernels::RmsNormShape& shape, const Tensor& x, const Tensor& scale,
                       Tensor& y, Tensor& inverse_rms) override {
    kernels::rmsnorm_forward(*queue_, shape, x.as<float>(), scale.as<float>(), y.as<Real>(),
                             inverse_rms.as<float>());
  }

  void linear_forward(const kernels::LinearShape& shape, const Tensor& x, const Tensor& w,
                      Tensor& y, Write write) override {
    const auto* const from = x.as<Real>();
    if (y.type() == flow()) {
      kernels::linear_forward(*queue_, shape, from, w.as<Real>(), y.as<Real>(), write);
    } else {
      kernels::linear_forward(*queue_, shape, from, w.as<Real>(), y.as<float>(), write);
    }
  }
  void linear_backward_input(const kernels::LinearShape& shape, const Tensor& dy, const Tensor& w,
                             Tensor& dx, Write write) override {
    const auto* const from = dy.as<Real>();
    if (dx.type() == flow()) {
      kernels::linear_backward_input(*queue_, shape, from, w.as<Real>(), dx.as<Real>(), write);
    } else {
      kernels::linear_backward_input(*queue_, shape, from, w.as<Real>(), dx.as<float>(), write);
    }
  }
  void linear_backward_weight(const kernels::LinearShape& shape, const Tensor& dy, const Tensor& x,
                              Tensor& dw) override {
    kernels::linear_backward_weight(*queue_, shape, dy.as<Real>(), x.as<Real>(), dw.as<float>());
  }

  void rope(const kernels::RopeShape& shape, const Tensor& cosine, const Tensor& sine, Tensor& x,
            bool inverse) override {
    const auto* const cosines = cosine.as<float>();
    if (inverse) {
      kernels::rope_backward(*queue_, shape, cosines, sine.as<float>(), x.as<Real>());
    } else {
      kernels::rope_forward(*queue_, shape, cosines, sine.as<float>(), x.as<Real>());
    }
  }

  void attention_forward(const kernels::AttentionShape& shape, const Tensor& q, const Tensor& k,
                         const Tensor& v, Tensor& probabilities, Tensor& out) override {
    kernels::attention_forward(*queue_, shape, q.as<Real>(), k.as<Real>(), v.as<Real>(),
                               probabilities.as<Real>(), out.as<Real>());
  }
  void attention_backward(const kernels::AttentionShape& shape, const Tensor& dout, const Tensor& q,
                          const Tensor& k, const Tensor& v, const Tensor& probabilities, Tensor& dq,
                          Tensor& dk, Tensor& dv) override {
    kernels::attention_backward<Real>(*queue_, shape, dout.as<Real>(), q.as<Real>(), k.as<Real>(),
                                      v.as<Real>(), probabilities.as<Real>(),
                                      {dq.as<Real>(), dk.as<Real>(), dv.as<Real>()});
  }

  void permute_forward(const kernels::PermuteShape& shape, const Tensor& x, const Tensor& position,
                       Tensor& rows) override {
    kernels::permute_forward(*queue_, shape, x.as<Real>(), position.as<int64_t>(), rows.as<Real>());
  }
  void permute_backward(const kernels::PermuteShape& shape, const Tensor& drows,
                        const Tensor& position, Tensor& dx) override {
    kernels::permute_backward(*queue_, shape, drows.as<Real>(), position.as<int64_t>(),
                              dx.as<float>());
  }
  void unpermute_forward(const kernels::PermuteShape& shape, const Tensor& rows,
                         const Tensor& position, const Tensor& weight, Tensor& out) override {
    kernels::unpermute_forward(*queue_, shape, rows.as<Real>(), position.as<int64_t>(),
                               weight.as<float>(), out.as<float>());
  }
  void unpermute_backward(const kernels::PermuteShape& shape, const Tensor& dout, Tensor& rows,
                          const Tensor& position, const Tensor& weight, Tensor& dweight) override {
    kernels::unpermute_backward(*queue_, shape, dout.as<float>(), std::as_const(rows).as<Real>(),
                                position.as<int64_t>(), weight.as<float>(), rows.as<Real>(),
                                dweight.as<float>());
  }
  void gather_rows(int64_t width, const Tensor& source, const Tensor& from, Tensor& to) override {
    kernels::gather_rows(*queue_, count_of(source), width, source.as<int64_t>(), from.as<Real>(),
                         to.as<Real>());
  }
  void scatter_rows(int64_t width, const Tensor& target, const Tensor& from, Tensor& to) override {
    kernels::scatter_rows(*queue_, count_of(target), width, target.as<int64_t>(), from.as<Real>(),
                          to.as<Real>());
  }

  void expert_gemm_forward(const kernels::ExpertShape& shape, std::span<const ExpertRows> experts,
                           const Tensor& x, ExpertActivations& activations, Tensor& y) override {
    kernels::expert_gemm_forward<Real>(*queue_, shape, groups_of(shape, experts), x.as<Real>(),
                                       pointers(activations), y.as<Real>());
  }
  void expert_gemm_backward(const kernels::ExpertShape& shape, std::span<const ExpertRows> experts,
                            const Tensor& dy, const Tensor& x, ExpertActivations& activations,
                            Tensor& dx) override {
    kernels::expert_gemm_backward<Real>(*queue_, shape, groups_of(shape, experts), dy.as<Real>(),
                                        x.as<Real>(), pointers(activations), dx.as<Real>());
  }

  void cross_entropy_backward(const kernels::CrossEntropyShape& shape, float scale,
                              const Tensor& logits, const Tensor& targets,
                              const Tensor& log_sum_exp, Tensor& dlogits) override {
    kernels::cross_entropy_backward(*queue_, shape, scale, logits.as<float>(),
                                    targets.as<int32_t>(), log_sum_exp.as<float>(),
                                    dlogits.as<Real>());
  }

  void adamw_update(const kernels::AdamWStep& step, const Tensor& grad, Tensor& value, Tensor& m,
                    Tensor& v, Tensor& flow_value) override {
    kernels::adamw_update(*queue_, step, count_of(value), grad.as<float>(), value.as<float>(),
                          m.as<float>(), v.as<float>(),
                          flow_value.empty() ? nullptr : flow_value.as<Bf16>());
  }

 private:
  static std::vector<kernels::CudaExpertGroup<Real>> groups_of(
      const kernels::ExpertShape& shape, std::span<const ExpertRows> experts) {
    return expert_groups<kernels::CudaExpertGroup<Real>, Real, float>(shape, experts);
  }
  static kernels::CudaExpertActivations<Real> pointers(ExpertActivations& activations) {
    return {activations.gate.as<Real>(), activations.up.as<Real>(), activations.inner.as<Real>()};
  }
};

}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device(const CudaDeviceOptions& options) {
  std::string reason;
  if (kernels::cuda_device_count(&reason) == 0) {
    return make_error(ErrorCode::kUnavailable, "device cuda:{}: {}", options.index, reason);
  }
  auto current = std::make_unique<kernels::CudaDeviceScope>(options.index);
  auto queue =
      kernels::make_cuda_queue({.device = options.index, .timeout_ms = options.timeout_ms});
  if (!queue.ok()) {
    return make_error(queue.error().code, "device cuda:{}: {}", options.index,
                      queue.error().message);
  }
  std::unique_ptr<CudaDevice> device;
  if (options.precision == Precision::kBf16) {
    device = std::make_unique<CudaDeviceOf<Bf16>>(options, std::move(current), std::move(*queue));
  } else {
    device = std::make_unique<CudaDeviceOf<float>>(options, std::move(current), std::move(*queue));
  }
  CKPT_TRY(device->prepare());
  return std::unique_ptr<Device>(std::move(device));
}

void set_while_waiting(Device& device, const std::function<void()>& call) {
  CKPT_ASSERT_MSG(!device.is_host(), device.name());
  static_cast<CudaDevice&>(device).set_while_waiting(call);
}

void call_at_next_wait(Device& device, const std::function<void()>& call) {
  CKPT_ASSERT_MSG(!device.is_host(), device.name());
  static_cast<CudaDevice&>(device).call_at_next_wait(call);
}

kernels::CudaQueue& cuda_queue(Device& device) {
  CKPT_ASSERT_MSG(!device.is_host(), device.name());
  return static_cast<CudaDevice&>(device).queue();
}

}  // namespace moetrain
