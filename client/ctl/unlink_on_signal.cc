#include "client/ctl/unlink_on_signal.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>

namespace ckptctl {
namespace {

// A path that a handler may read at any time: nodes are never freed, and `path` never changes.
// `wanted`: the path is on the list.
struct Node {
  const std::string path;
  std::atomic<bool> wanted = true;
  Node* const next;
};
std::atomic<Node*> first_node{nullptr};

// Signals of terminals, batch systems and limits.
constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT, SIGXCPU};

// Async-signal-safe: loads, unlink, and raising the signal again with its default disposition,
// which SA_RESETHAND has brought back.
void unlink_all(int signal) {
  for (Node* node = first_node.load(); node != nullptr; node = node->next) {
    if (node->wanted.load()) ::unlink(node->path.c_str());
  }
  ::raise(signal);
}

void install() {
  for (const int signal : kSignals) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    struct sigaction wanted {};
    wanted.sa_handler = unlink_all;
    wanted.sa_flags = SA_RESETHAND;
    ::sigemptyset(&wanted.sa_mask);
    ::sigaction(signal, &wanted, nullptr);
  }
}

}  // namespace

void unlink_on_signal(const std::string& path) {
  static std::once_flag once;
  std::call_once(once, install);
  first_node = new Node{path, true, first_node.load()};
}

void keep_on_signal(const std::string& path) {
  for (Node* node = first_node.load(); node != nullptr; node = node->next) {
    if (node->path == path) node->wanted = false;
  }
}

}  // namespace ckptctl
