// NUMA: which node of the machine a GPU is attached to, and memory near it. A copy to or from the
// other socket's memory crosses the link between the sockets and loses PCIe rate.
#pragma once

#include <string>

#include "formats/base/bytes.h"

namespace ckpt::lib {

// NUMA node of the PCI device with this address ("0000:C1:00.0", any case), read from the folder
// `devices`. -1: the machine has one node, or the node is unknown.
int numa_node_of_pci_device(const std::string& address,
                            const std::string& devices = "/sys/bus/pci/devices");

// Pages of `memory` touched from now on come from `node` while it has free ones, whichever process
// touches them if the memory is shared. Existing pages do not move. `memory` begins on a page.
// False: the system refuses, as in containers without CAP_SYS_NICE.
bool prefer_numa_node(MutableByteView memory, int node);

}  // namespace ckpt::lib
