// Whether a restore into device memory shall read files itself, and what it takes to.
#pragma once

#include <ckpt/ckpt.h>

#include <memory>
#include <string>

#include "client/src/cuda/cufile.h"

namespace ckpt::lib {

// What the options say, or else the environment, or else off. kInvalidArgument quotes what is no
// such word.
Result<ckpt_direct> direct_mode(const ckpt_restore_options& options);

// cuFile of one ckpt_cuda: opened when it is first wanted, once. What has failed then is
// remembered: a driver that does not answer shall cost its timeout once.
class CuFileOnDemand {
 public:
  // Null, and why(), if there is none.
  std::shared_ptr<CuFile> get(int device, uint32_t timeout_ms);
  const std::string& why() const { return why_; }

 private:
  bool asked_ = false;
  std::shared_ptr<CuFile> library_;
  std::string why_;
};

}  // namespace ckpt::lib
