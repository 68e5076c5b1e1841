// RightsOption: whether clients may pass descriptors to a socket (SO_PASSRIGHTS, Linux 6.16).
//
// A passed descriptor is a reference to a file of the client's choice. Closing the last reference
// runs code of that file: it may wait for a TCP peer (SO_LINGER) or for a FUSE server, for as long
// as the client likes. If the kernel can refuse descriptors, none reaches the daemon.
#pragma once

namespace ckptd {

class RightsOption {
 public:
  // `kernel_can_refuse` false: behaves as on a kernel before 6.16. For tests.
  explicit RightsOption(bool kernel_can_refuse = true) : try_kernel_(kernel_can_refuse) {}

  // On a listener this applies to later connections. False: the kernel cannot refuse.
  bool allow(int socket, bool allowed) const;
  // Also true if the kernel cannot refuse.
  bool allowed(int socket) const;

 private:
  const bool try_kernel_;
};

}  // namespace ckptd
