// Controls of the double of libcufile. The code under test and the test open the library at run
// time, so this is plain data behind one C function.
#pragma once

#include <atomic>

namespace cufile_double {

enum class ReadFault : int {
  kNone,
  kPartial,      // returns half of the bytes; the next read returns the rest
  kEndOfFile,    // returns no bytes, as at the end of the file
  kDiskError,    // -1, EIO
  kCuFileError,  // an error of its own
  kWrongByte,    // returns all bytes, one of them wrong
};

struct Control {
  // Codes that calls return; 0: calls work.
  std::atomic<int> driver_error{0};
  std::atomic<int> handle_error{0};
  std::atomic<int> buffer_error{0};
  std::atomic<bool> driver_hangs{false};  // until this is set to false
  std::atomic<bool> reads_hang{false};    // the same
  // From read number fault_from (the first is 0), fault_count reads have this fault.
  std::atomic<ReadFault> read_fault{ReadFault::kNone};
  std::atomic<int> fault_from{0};
  std::atomic<int> fault_count{0};
  // Called before each read, by the thread that reads.
  std::atomic<void (*)(void* context, int number)> on_read{nullptr};
  std::atomic<void*> context{nullptr};

  // Open drivers, registered files and buffers; reads and wrong calls so far.
  std::atomic<int> drivers{0};
  std::atomic<int> files{0};
  std::atomic<int> buffers{0};
  std::atomic<int> reads{0};
  std::atomic<int> wrong_calls{0};  // calls that the real library would have rejected
};

}  // namespace cufile_double

extern "C" cufile_double::Control* cufile_double_control();
