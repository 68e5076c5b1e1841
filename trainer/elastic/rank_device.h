// Which device a rank computes on.
#pragma once

#include <memory>
#include <string>

#include "trainer/device/device.h"

namespace moetrain {

// `text` is "cpu"; "cuda": every rank a GPU by its number, those beyond the last begin again with
// the first; or "cuda:N": all of them GPU N. kInvalidArgument, named by its flag, for anything else
// and for a precision that the device does not compute in.
Status check_device(const std::string& text, Precision precision);

// The device of a rank, for the calling thread: with "cuda" the `gpu`-th of those there are, modulo
// their number. Errors as check_device() and make_cuda_device().
Result<std::unique_ptr<Device>> make_rank_device(const std::string& text, Precision precision,
                                                 uint32_t gpu, uint32_t timeout_ms);

// The calling thread stays on the `number`-th CPU it may use, modulo how many these are. kIo if the
// system does not allow it.
Status pin_to_cpu(uint32_t number);

}  // namespace moetrain
