// The component for GPU memory links, and says what it cannot do without a session.
#include <ckpt/client_cuda.hpp>
#include <iostream>

int main() {
  using ckpt::client::Cuda;
  ckpt_cuda* none = reinterpret_cast<ckpt_cuda*>(&std::cout);
  if (ckpt_cuda_open(nullptr, nullptr, &none, nullptr, 0) != CKPT_E_INVALID_ARGUMENT) return 1;
  // What a trainer would go on with.
  const auto restore = &Cuda::restore;
  const auto stage = &Cuda::stage;
  return restore != nullptr && stage != nullptr ? 0 : 2;
}
