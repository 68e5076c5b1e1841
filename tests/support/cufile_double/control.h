// What a test asks of the double of libcufile. The library is opened at run time, by the code under
// test and by the test, so this is plain data behind one C function.
#pragma once

#include <atomic>

namespace cufile_double {

enum class ReadFault : int {
  kNone,
  kPartial,      // brings half of what was asked for; the next read brings the rest
  kEndOfFile,    // brings nothing, as behind the end of the file
  kDiskError,    // -1, EIO
  kCuFileError,  // an error of its own
  kWrongByte,    // brings everything, one byte of it wrong
};

struct Control {
  // Codes that calls return; 0: they do what they are for.
  std::atomic<int> driver_error{0};
  std::atomic<int> handle_error{0};
  std::atomic<int> buffer_error{0};
  std::atomic<bool> driver_hangs{false};  // until this is false again
  std::atomic<bool> reads_hang{false};    // the same
  // From read number fault_from (the first is 0), fault_count reads have this fault.
  std::atomic<ReadFault> read_fault{ReadFault::kNone};
  std::atomic<int> fault_from{0};
  std::atomic<int> fault_count{0};
  // Called before each read, by the thread that reads.
  std::atomic<void (*)(void* context, int number)> on_read{nullptr};
  std::atomic<void*> context{nullptr};

  // What there is.
  std::atomic<int> drivers{0};
  std::atomic<int> files{0};
  std::atomic<int> buffers{0};
  std::atomic<int> reads{0};
  std::atomic<int> wrong_calls{0};  // that the real library would not have taken
};

}  // namespace cufile_double

extern "C" cufile_double::Control* cufile_double_control();
