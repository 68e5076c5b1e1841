// Device: holds a rank's tensors and computes with them.
//
// The model, its gradients and the optimizer are written once, against this interface. A device is
// the host (fp32, through the CPU kernels) or a GPU (fp32 or bf16, through those for CUDA).
//
// Work is queued: a call returns before the device has done it, and reports nothing. The next
// synchronize() or download() reports a failure; nothing is computed in between. Shapes and
// meanings are those of the kernels of the same name (kernels/README.md); tensors have the sizes
// that the shapes imply. Types:
//
//   flow()       inputs and outputs of matrix products: activations, rows, their gradients
//   kFloat       the residual stream and its gradient, router numbers, weights, moments
//   grad_sum()   accumulator of the gradients of weights
//
// One per rank, created, used and destroyed in one thread. On the host, memory may be allocated,
// freed, copied and added up by any thread.
#pragma once

#include <memory>
#include <string>

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/expert_gemm.h"
#include "kernels/gate_topk.h"
#include "kernels/linear.h"
#include "kernels/permute.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "trainer/device/tensor.h"

namespace moetrain {

namespace kernels = ckpt::kernels;

// Type of matrix products. Master weights and moments are fp32 either way.
enum class Precision : uint8_t { kFp32, kBf16 };

// One expert's weights, in the type of products, and the gradients that backward adds to: each
// w1 [intermediate, hidden], w2 [hidden, intermediate] and w3 [intermediate, hidden], one after the
// other.
struct ExpertTensors {
  const Tensor* weights = nullptr;  // flow()
  Tensor* gradients = nullptr;      // grad_sum(); backward only
};
struct ExpertRows {
  int64_t rows = 0;
  ExpertTensors expert;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;  // "cpu", "cuda:0 bf16"
  virtual bool is_host() const = 0;
  virtual Type flow() const = 0;
  // kDouble: gradients accumulate in a separate tensor and are rounded into the gradient at the
  // end. kFloat: they accumulate in the gradient itself.
  virtual Type grad_sum() const = 0;

  // Waits until all queued work is done. kIo with the first failure since the last call;
  // kResourceExhausted if an allocation failed; kDeadlineExceeded if the work is not done within
  // the device's timeout.
  virtual Status synchronize() = 0;

  // kInvalidArgument with the bound if its kernels cannot route tokens among so many experts.
  virtual Status check_gate(int64_t experts, int64_t top_k) const = 0;

  // For Tensor. Null, and a failure, if there is no more memory.
  virtual void* allocate(size_t bytes) = 0;
  virtual void free(void* at) = 0;
  virtual void upload(void* to, std::span<const std::byte> from) = 0;
  virtual Status download(std::span<std::byte> to, const void* from) = 0;
  virtual void zero(void* at, size_t bytes) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  // to += from, fp32.
  virtual void add(float* to, const float* from, size_t count) = 0;

  // Returns x as flow(): x itself, or x rounded into `room`. Not const, to refuse temporaries.
  virtual const Tensor& as_flow(Tensor& x, Tensor& room) = 0;
  // *sum (kDouble) += squares of `count` elements.
  virtual void add_sum_of_squares(const float* x, size_t count, Tensor& sum) = 0;
  // sums [columns] (kDouble) += x [rows, columns] (kFloat).
  virtual void add_column_sums(int64_t rows, const Tensor& x, Tensor& sums) = 0;

  virtual void embedding_forward(int64_t width, const Tensor& tokens, const Tensor& table,
                                 Tensor& out) = 0;
  // dtable: grad_sum().
  virtual void embedding_backward(int64_t width, const Tensor& tokens, const Tensor& dout,
                                  Tensor& dtable) = 0;

  // x: kFloat; y: flow().
  virtual void rmsnorm_forward(const kernels::RmsNormShape& shape, const Tensor& x,
                               const Tensor& scale, Tensor& y, Tensor& inverse_rms) = 0;
  // dy, dx: kFloat; dscale: grad_sum().
  virtual void rmsnorm_backward(const kernels::RmsNormShape& shape, const Tensor& dy,
                                const Tensor& x, const Tensor& scale, const Tensor& inverse_rms,
                                Tensor& dx, Tensor& dscale) = 0;

  // x, w: flow(); y: flow() or kFloat.
  virtual void linear_forward(const kernels::LinearShape& shape, const Tensor& x, const Tensor& w,
                              Tensor& y, kernels::Write write = kernels::Write::kReplace) = 0;
  virtual void linear_backward_input(const kernels::LinearShape& shape, const Tensor& dy,
                                     const Tensor& w, Tensor& dx,
                                     kernels::Write write = kernels::Write::kReplace) = 0;
  // dw: grad_sum().
  virtual void linear_backward_weight(const kernels::LinearShape& shape, const Tensor& dy,
                                      const Tensor& x, Tensor& dw) = 0;

  // x: flow(). The inverse rotates gradients.
  virtual void rope(const kernels::RopeShape& shape, const Tensor& cosine, const Tensor& sine,
                    Tensor& x, bool inverse) = 0;

  // All flow().
  virtual void attention_forward(const kernels::AttentionShape& shape, const Tensor& q,
                                 const Tensor& k, const Tensor& v, Tensor& probabilities,
                                 Tensor& out) = 0;
  virtual void attention_backward(const kernels::AttentionShape& shape, const Tensor& dout,
                                  const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Tensor& probabilities, Tensor& dq, Tensor& dk,
                                  Tensor& dv) = 0;

  // All kFloat, except the choice, kInt32. The logits become the probabilities.
  virtual void gate_topk_forward(const kernels::GateShape& shape, Tensor& logits, Tensor& choice,
                                 Tensor& weight) = 0;
  virtual void gate_topk_backward(const kernels::GateShape& shape, const Tensor& dweight,
                                  const Tensor& dprobability, const Tensor& probabilities,
                                  const Tensor& choice, const Tensor& weight, Tensor& dlogits) = 0;

  // Rows and x: flow(); dx, out and dout: kFloat; positions: kInt64.
  virtual void permute_forward(const kernels::PermuteShape& shape, const Tensor& x,
                               const Tensor& position, Tensor& rows) = 0;
  virtual void permute_backward(const kernels::PermuteShape& shape, const Tensor& drows,
                                const Tensor& position, Tensor& dx) = 0;
  virtual void unpermute_forward(const kernels::PermuteShape& shape, const Tensor& rows,
                                 const Tensor& position, const Tensor& weight, Tensor& out) = 0;
  // The rows become their gradients.
  virtual void unpermute_backward(const kernels::PermuteShape& shape, const Tensor& dout,
                                  Tensor& rows, const Tensor& position, const Tensor& weight,
                                  Tensor& dweight) = 0;
  virtual void gather_rows(int64_t width, const Tensor& source, const Tensor& from, Tensor& to) = 0;
  virtual void scatter_rows(int64_t width, const Tensor& target, const Tensor& from,
                            Tensor& to) = 0;

  struct ExpertActivations {
    Tensor gate, up, inner;  // flow(), [rows of all experts, intermediate]
  };
  virtual void expert_gemm_forward(const kernels::ExpertShape& shape,
                                   std::span<const ExpertRows> experts, const Tensor& x,
                                   ExpertActivations& activations, Tensor& y) = 0;
  virtual void expert_gemm_backward(const kernels::ExpertShape& shape,
                                    std::span<const ExpertRows> experts, const Tensor& dy,
                                    const Tensor& x, ExpertActivations& activations,
                                    Tensor& dx) = 0;

  // Logits: kFloat. read_loss() returns loss and targets of all rows, once the device is done.
  virtual void cross_entropy_forward(const kernels::CrossEntropyShape& shape, const Tensor& logits,
                                     const Tensor& targets, Tensor& log_sum_exp) = 0;
  virtual Result<kernels::CrossEntropySum> read_loss() = 0;
  // dlogits: flow().
  virtual void cross_entropy_backward(const kernels::CrossEntropyShape& shape, float scale,
                                      const Tensor& logits, const Tensor& targets,
                                      const Tensor& log_sum_exp, Tensor& dlogits) = 0;

  // flow_value: the new value in the type of products, if that is not the value itself.
  virtual void adamw_update(const kernels::AdamWStep& step, const Tensor& grad, Tensor& value,
                            Tensor& m, Tensor& v, Tensor& flow_value) = 0;
};

std::unique_ptr<Device> make_cpu_device();

}  // namespace moetrain
