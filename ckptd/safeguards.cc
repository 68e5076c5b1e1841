#include "ckptd/safeguards.h"

namespace ckptd {

bool left_out(Safeguard /*safeguard*/) { return false; }

}  // namespace ckptd
