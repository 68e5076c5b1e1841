// Owns device memory and shares it with another process (cudaIpcGetMemHandle), until its stdin
// ends. One argument: how many bytes. Prints the handle in hexadecimal, and a newline.
#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

int main(int argc, char** argv) {
  const size_t bytes = argc == 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
  void* at = nullptr;
  cudaIpcMemHandle_t handle{};
  if (bytes == 0 || cudaMalloc(&at, bytes) != cudaSuccess) return 2;
  if (cudaIpcGetMemHandle(&handle, at) != cudaSuccess) return 3;
  unsigned char raw[sizeof handle];
  std::memcpy(raw, &handle, sizeof raw);
  for (const unsigned char byte : raw) std::printf("%02x", byte);
  std::printf("\n");
  std::fflush(stdout);
  char rest = 0;
  while (::read(STDIN_FILENO, &rest, 1) > 0) continue;
  return cudaFree(at) == cudaSuccess ? 0 : 4;
}
