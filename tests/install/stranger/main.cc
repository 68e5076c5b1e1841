// The test of main.c, in C++17 with the wrapper.
#include <ckpt/client.hpp>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  ckpt::client::OpenOptions options;
  options.socket = std::string("unix:") + argv[1];
  options.run = "tiny";
  options.timeout_ms = 20;
  const auto session = ckpt::client::Session::open(options);
  if (session || session.error().status != CKPT_E_UNAVAILABLE) return 2;
  std::cout << session.error().message << "\n";
  return 0;
}
