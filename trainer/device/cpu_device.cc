// The host device: tensors are host memory, and a kernel is done when the call returns.
#include <algorithm>
#include <cstring>
#include <new>

#include "kernels/blas.h"
#include "kernels/embedding.h"
#include "kernels/sums.h"
#include "trainer/device/device.h"
#include "trainer/device/expert_groups.h"

namespace moetrain {

using kernels::Write;

namespace {

// Width of the widest vector register, so that loops run alike on every tensor.
constexpr std::align_val_t kAlignment{64};

int64_t count_of(const Tensor& tensor) { return static_cast<int64_t>(tensor.size()); }

class CpuDevice final : public Device {
 public:
  std::string name() const override { return "cpu"; }
  bool is_host() const override { return true; }
  Type flow() const override { return Type::kFloat; }
  Type grad_sum() const override { return Type::kDouble; }
  Status synchronize() override { return {}; }
  Status check_gate(int64_t, int64_t) const override { return {}; }

  void* allocate(size_t bytes) override { return ::operator new(bytes, kAlignment); }
  void free(void* at) override { ::operator delete(at, kAlignment); }
  void upload(void* to, std::span<const std::byte> from) override {
    std::memcpy(to, from.data(), from.size());
  }
  Status download(std::span<std::byte> to, const void* from) override {
    std::memcpy(to.data(), from, to.size());
    return {};
  }
  void zero(void* at, size_t bytes) override { std::memset(at, 0, bytes); }
  void copy(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void add(float* to, const float* from, size_t count) override {
    kernels::add(static_cast<int64_t>(count), from, to);
  }

  const Tensor& as_flow(Tensor& x, Tensor&) override { return x; }
  void add_sum_of_squares(const float* x, size_t count, Tensor& sum) override {
    kernels::add_sum_of_squares(static_cast<int64_t>(count), x, sum.as<double>());
  }
  void add_column_sums(int64_t rows, const Tensor& x, Tensor& sums) override {
    kernels::add_column_sums(rows, count_of(sums), x.as<float>(), sums.as<double>());
  }

  void embedding_forward(int64_t width, const Tensor& tokens, const Tensor& table,
                         Tensor& out) override {
    kernels::embedding_forward(count_of(tokens), width, tokens.as<int32_t>(), table.as<float>(),
                               out.as<float>());
  }
  void embedding_backward(int64_t width, const Tensor& tokens, const Tensor& dout,
                          Tensor& dtable) override {
    kernels::embedding_backward(count_of(tokens), width, tokens.as<int32_t>(), dout.as<float>(),
                                dtable.as<double>());
  }

  void rmsnorm_forward(const kernels::RmsNormShape& shape, const Tensor& x, const Tensor& scale,
                       Tensor& y, Tensor& inverse_rms) override {
    kernels::rmsnorm_forward(shape, x.as<float>(), scale.as<float>(), y.as<float>(),
                             inverse_rms.as<float>());
  }
  void rmsnorm_backward(const kernels::RmsNormShape& shape, const Tensor& dy, const Tensor& x,
                        const Tensor& scale, const Tensor& inverse_rms, Tensor& dx,
                        Tensor& dscale) override {
    kernels::rmsnorm_backward(shape, dy.as<float>(), x.as<float>(), scale.as<float>(),
                              inverse_rms.as<float>(), dx.as<float>(), dscale.as<double>());
  }

  void linear_forward(const kernels::LinearShape& shape, const Tensor& x, const Tensor& w,
                      Tensor& y, Write write) override {
    kernels::linear_forward(shape, x.as<float>(), w.as<float>(), y.as<float>(), write);
  }
  void linear_backward_input(const kernels::LinearShape& shape, const Tensor& dy, const Tensor& w,
                             Tensor& dx, Write write) override {
    kernels::linear_backward_input(shape, dy.as<float>(), w.as<float>(), dx.as<float>(), write);
  }
  void linear_backward_weight(const kernels::LinearShape& shape, const Tensor& dy, const Tensor& x,
                              Tensor& dw) override {
    kernels::linear_backward_weight(shape, dy.as<float>(), x.as<float>(), scratch(dw.size()),
                                    dw.as<double>());
  }

  void rope(const kernels::RopeShape& shape, const Tensor& cosine, const Tensor& sine, Tensor& x,
            bool inverse) override {
    (inverse ? static_cast<Rotation*>(kernels::rope_backward)
             : static_cast<Rotation*>(kernels::rope_forward))(shape, cosine.as<float>(),
                                                              sine.as<float>(), x.as<float>());
  }

  void attention_forward(const kernels::AttentionShape& shape, const Tensor& q, const Tensor& k,
                         const Tensor& v, Tensor& probabilities, Tensor& out) override {
    kernels::attention_forward(shape, q.as<float>(), k.as<float>(), v.as<float>(),
                               probabilities.as<float>(), out.as<float>());
  }
  void attention_backward(const kernels::AttentionShape& shape, const Tensor& dout, const Tensor& q,
                          const Tensor& k, const Tensor& v, const Tensor& probabilities, Tensor& dq,
                          Tensor& dk, Tensor& dv) override {
    const auto seq_len = static_cast<size_t>(shape.seq_len);
    kernels::attention_backward(
        shape, dout.as<float>(), q.as<float>(), k.as<float>(), v.as<float>(),
        probabilities.as<float>(),
        {dq.as<float>(), dk.as<float>(), dv.as<float>(), scratch(seq_len * seq_len)});
  }

  void gate_topk_forward(const kernels::GateShape& shape, Tensor& logits, Tensor& choice,
                         Tensor& weight) override {
    kernels::gate_topk_forward(shape, logits.as<float>(), logits.as<float>(), choice.as<int32_t>(),
                               weight.as<float>());
  }
  void gate_topk_backward(const kernels::GateShape& shape, const Tensor& dweight,
                          const Tensor& dprobability, const Tensor& probabilities,
                          const Tensor& choice, const Tensor& weight, Tensor& dlogits) override {
    kernels::gate_topk_backward(shape, dweight.as<float>(), dprobability.as<float>(),
                                probabilities.as<float>(), choice.as<int32_t>(), weight.as<float>(),
                                dlogits.as<float>());
  }

  void permute_forward(const kernels::PermuteShape& shape, const Tensor& x, const Tensor& position,
                       Tensor& rows) override {
    kernels::permute_forward(shape, x.as<float>(), position.as<int64_t>(), rows.as<float>());
  }
  void permute_backward(const kernels::PermuteShape& shape, const Tensor& drows,
                        const Tensor& position, Tensor& dx) override {
    kernels::permute_backward(shape, drows.as<float>(), position.as<int64_t>(), dx.as<float>());
  }
  void unpermute_forward(const kernels::PermuteShape& shape, const Tensor& rows,
                         const Tensor& position, const Tensor& weight, Tensor& out) override {
    kernels::unpermute_forward(shape, rows.as<float>(), position.as<int64_t>(), weight.as<float>(),
                               out.as<float>());
  }
  void unpermute_backward(const kernels::PermuteShape& shape, const Tensor& dout, Tensor& rows,
                          const Tensor& position, const Tensor& weight, Tensor& dweight) override {
    kernels::unpermute_backward(shape, dout.as<float>(), rows.as<float>(), position.as<int64_t>(),
                                weight.as<float>(), rows.as<float>(), dweight.as<float>());
  }
  void gather_rows(int64_t width, const Tensor& source, const Tensor& from, Tensor& to) override {
    kernels::gather_rows(count_of(source), width, source.as<int64_t>(), from.as<float>(),
                         to.as<float>());
  }
  void scatter_rows(int64_t width, const Tensor& target, const Tensor& from, Tensor& to) override {
    kernels::scatter_rows(count_of(target), width, target.as<int64_t>(), from.as<float>(),
                          to.as<float>());
  }

  void expert_gemm_forward(const kernels::ExpertShape& shape, std::span<const ExpertRows> experts,
                           const Tensor& x, ExpertActivations& activations, Tensor& y) override {
    kernels::expert_gemm_forward(shape, groups_of(shape, experts), x.as<float>(),
                                 pointers(activations), y.as<float>());
  }
  void expert_gemm_backward(const kernels::ExpertShape& shape, std::span<const ExpertRows> experts,
                            const Tensor& dy, const Tensor& x, ExpertActivations& activations,
                            Tensor& dx) override {
    kernels::expert_gemm_backward(shape, groups_of(shape, experts), dy.as<float>(), x.as<float>(),
                                  pointers(activations), dx.as<float>());
  }

  void cross_entropy_forward(const kernels::CrossEntropyShape& shape, const Tensor& logits,
                             const Tensor& targets, Tensor& log_sum_exp) override {
    loss_ = kernels::cross_entropy_forward(shape, logits.as<float>(), targets.as<int32_t>(),
                                           log_sum_exp.as<float>());
  }
  Result<kernels::CrossEntropySum> read_loss() override { return loss_; }
  void cross_entropy_backward(const kernels::CrossEntropyShape& shape, float scale,
                              const Tensor& logits, const Tensor& targets,
                              const Tensor& log_sum_exp, Tensor& dlogits) override {
    kernels::cross_entropy_backward(shape, scale, logits.as<float>(), targets.as<int32_t>(),
                                    log_sum_exp.as<float>(), dlogits.as<float>());
  }

  void adamw_update(const kernels::AdamWStep& step, const Tensor& grad, Tensor& value, Tensor& m,
                    Tensor& v, Tensor&) override {
    kernels::adamw_update(step, count_of(value), grad.as<float>(), value.as<float>(), m.as<float>(),
                          v.as<float>());
  }

 private:
  using Rotation = void(const kernels::RopeShape&, const float*, const float*, float*);

  float* scratch(size_t count) {
    if (scratch_.size() < count) scratch_.resize(count);
    return scratch_.data();
  }

  static std::vector<kernels::ExpertGroup> groups_of(const kernels::ExpertShape& shape,
                                                     std::span<const ExpertRows> experts) {
    return expert_groups<kernels::ExpertGroup, float, double>(shape, experts);
  }
  static kernels::ExpertActivations pointers(ExpertActivations& activations) {
    return {activations.gate.as<float>(), activations.up.as<float>(),
            activations.inner.as<float>()};
  }

  std::vector<float> scratch_;
  kernels::CrossEntropySum loss_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
  kernels::use_one_blas_thread();
  return std::make_unique<CpuDevice>();
}

}  // namespace moetrain
