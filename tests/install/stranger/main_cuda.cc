// The test of main.cc for a trainer whose state is in GPU memory.
#include <ckpt/client_cuda.hpp>
#include <iostream>

using ckpt::client::Cuda;
using ckpt::client::Session;

// Restore of a unit: without a daemon it only has to compile and link.
static int restore(const Session& session, void* weights, uint64_t bytes) {
  auto cuda = Cuda::open(session);
  if (!cuda) return 4;
  ckpt::client::RestoreOptions newest;
  newest.latest = true;
  return cuda->restore(newest, {{0, 0, weights, bytes}}, nullptr) ? 0 : 5;
}

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  ckpt::client::OpenOptions options;
  options.socket = argv[1];
  options.run = "tiny";
  options.timeout_ms = 20;
  const auto session = Session::open(options);
  if (session) return restore(*session, nullptr, 0);
  if (session.error().status != CKPT_E_UNAVAILABLE) return 2;
  ckpt_cuda* none = nullptr;
  if (ckpt_cuda_open(nullptr, nullptr, &none, nullptr, 0) != CKPT_E_INVALID_ARGUMENT) return 3;
  std::cout << session.error().message << "\n";
  return 0;
}
