// ParkedDescriptors: descriptors in the queues of this process's own socket pairs (SCM_RIGHTS).
//
// A parked descriptor takes no place in a table of descriptors. A pair whose queue is full is
// itself parked in a pair of the next level. So an object of this class keeps only a few
// descriptors open, however many are parked. Closing the receiving end of a pair closes everything
// in its queue, and may block as closing each descriptor would.
//
// One thread at a time.
#pragma once

#include <array>
#include <cstddef>

#include "formats/base/unique_fd.h"

namespace ckptd {

class ParkedDescriptors {
 public:
  struct Lot {
    ckpt::base::UniqueFd fd;  // closing this closes the whole lot
    size_t descriptors = 0;
  };

  // False if the kernel does not take the descriptor; the caller then still owns it.
  bool park(ckpt::base::UniqueFd& fd);
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // Takes one pair with its parked descriptors. Precondition: not empty().
  Lot take();
  // Leaves everything to the end of the process. A destructor would close it, and might block.
  void abandon();

 private:
  struct Pair {
    ckpt::base::UniqueFd in;
    ckpt::base::UniqueFd out;
    size_t descriptors = 0;
  };
  // Before Linux 6.10 unix sockets in flight may be nested four levels deep. A queue takes some
  // hundred descriptors.
  static constexpr size_t kLevels = 3;

  bool park_in(size_t level, ckpt::base::UniqueFd& fd, size_t descriptors);

  std::array<Pair, kLevels> pairs_;
  size_t size_ = 0;
};

}  // namespace ckptd
