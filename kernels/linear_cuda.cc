#include "kernels/bf16.h"
#include "kernels/cuda/gemm.h"
#include "kernels/linear.h"

namespace ckpt::kernels {
namespace {

float beta_of(Write write) { return write == Write::kAdd ? 1.0f : 0.0f; }

}  // namespace

template <typename Real, typename Out>
void linear_forward(CudaQueue& queue, const LinearShape& shape, const Real* x, const Real* w,
                    Out* y, Write write) {
  gemm(queue, {shape.rows, shape.out, shape.in}, 1.0f, DeviceMatrix<Real>{x, shape.in},
       DeviceMatrix<Real>{w, shape.in, Transpose::kYes}, beta_of(write), y, shape.out);
}

template <typename Real, typename Out>
void linear_backward_input(CudaQueue& queue, const LinearShape& shape, const Real* dy,
                           const Real* w, Out* dx, Write write) {
  gemm(queue, {shape.rows, shape.in, shape.out}, 1.0f, DeviceMatrix<Real>{dy, shape.out},
       DeviceMatrix<Real>{w, shape.in}, beta_of(write), dx, shape.in);
}

template <typename Real>
void linear_backward_weight(CudaQueue& queue, const LinearShape& shape, const Real* dy,
                            const Real* x, float* dw) {
  gemm(queue, {shape.out, shape.in, shape.rows}, 1.0f,
       DeviceMatrix<Real>{dy, shape.out, Transpose::kYes}, DeviceMatrix<Real>{x, shape.in}, 1.0f,
       dw, shape.in);
}

template void linear_forward<float, float>(CudaQueue&, const LinearShape&, const float*,
                                           const float*, float*, Write);
template void linear_forward<Bf16, Bf16>(CudaQueue&, const LinearShape&, const Bf16*, const Bf16*,
                                         Bf16*, Write);
template void linear_forward<Bf16, float>(CudaQueue&, const LinearShape&, const Bf16*, const Bf16*,
                                          float*, Write);
template void linear_backward_input<float, float>(CudaQueue&, const LinearShape&, const float*,
                                                  const float*, float*, Write);
template void linear_backward_input<Bf16, Bf16>(CudaQueue&, const LinearShape&, const Bf16*,
                                                const Bf16*, Bf16*, Write);
template void linear_backward_input<Bf16, float>(CudaQueue&, const LinearShape&, const Bf16*,
                                                 const Bf16*, float*, Write);
template void linear_backward_weight<float>(CudaQueue&, const LinearShape&, const float*,
                                            const float*, float*);
template void linear_backward_weight<Bf16>(CudaQueue&, const LinearShape&, const Bf16*, const Bf16*,
                                           float*);

}  // namespace ckpt::kernels
