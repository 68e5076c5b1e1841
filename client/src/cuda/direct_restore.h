// Decides whether a restore into device memory reads files itself, and opens cuFile for it.
#pragma once

#include <ckpt/ckpt.h>

#include <memory>
#include <string>

#include "client/src/cuda/cufile.h"

namespace ckpt::lib {

// Mode from the options, else the environment, else off. kInvalidArgument quotes an unknown word of
// the environment.
Result<ckpt_direct> direct_mode(const ckpt_restore_options& options);

// cuFile of one ckpt_cuda: opened once, at the first use. A failure is remembered: a driver that
// does not answer costs its timeout only once.
class CuFileOnDemand {
 public:
  // Null if cuFile is unavailable; why() has the reason.
  std::shared_ptr<CuFile> get(int device, uint32_t timeout_ms);
  const std::string& why() const { return why_; }

 private:
  bool asked_ = false;
  std::shared_ptr<CuFile> library_;
  std::string why_;
};

}  // namespace ckpt::lib
