// Restores that read the daemon's files by cuFile, replaced by a double. All other parts are real,
// except the device.
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <pthread.h>

#include <cerrno>
#include <cstdlib>

#include "formats/base/unique_fd.h"
#include "tests/client/cuda_daemon_fixture.h"
#include "tests/support/cuda_emulator/control.h"
#include "tests/support/cufile_double/control.h"

namespace {
thread_local bool no_more_threads = false;
}  // namespace

// The sanitizer's pthread_create, if a sanitizer is linked.
// NOLINTNEXTLINE(readability-identifier-naming,bugprone-reserved-identifier): their name
extern "C" [[gnu::weak]] int __interceptor_pthread_create(pthread_t*, const pthread_attr_t*,
                                                          void* (*)(void*), void*);

// Replaces the C library's pthread_create and forwards to it. Fails if the caller asked for that.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) {
  if (no_more_threads) return EAGAIN;
  static const auto real =
      __interceptor_pthread_create != nullptr
          ? &__interceptor_pthread_create
          : reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, body, argument);
}

namespace ckpt::test {
namespace {

using cufile_double::Control;
using cufile_double::ReadFault;
using testing::HasSubstr;

Control& control() {
  static void* const library = ::dlopen(CUFILE_DOUBLE, RTLD_NOW);
  static auto* const get =
      reinterpret_cast<Control* (*)()>(::dlsym(library, "cufile_double_control"));
  return *get();
}

class CuFileTest : public CudaDaemonTest {
 protected:
  void SetUp() override {
    ::setenv("CKPTD_CUFILE_LIBRARY", CUFILE_DOUBLE, 1);
    ::unsetenv("CKPTD_CUFILE");
    CudaDaemonTest::SetUp();
    const base::UniqueFd probe(
        ::open(daemon_.data().c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600));
    if (!probe.valid()) GTEST_SKIP() << "skipped: no O_DIRECT in " << daemon_.data();
    save(1);
    save(2);
    daemon_.crash_and_restart();  // empties the memory level
    view_.step = 2;
    view_.direct = CKPT_DIRECT_AUTO;
    base_reads_ = control().reads;
  }
  void TearDown() override {
    Control& all = control();
    all.driver_error = all.handle_error = all.buffer_error = 0;
    all.driver_hangs = all.reads_hang = false;
    all.read_fault = ReadFault::kNone;
    all.fault_count = 0;
    all.on_read = nullptr;
    cuda_.reset();
    EXPECT_EQ(all.files, 0);
    EXPECT_EQ(all.buffers, 0);
    EXPECT_EQ(all.wrong_calls, 0);
    EXPECT_EQ(all.drivers, drivers_left_);
    ::unsetenv("CKPTD_CUFILE");
  }
  // Reads [from, from + count) have this fault, counted from now.
  void fail_reads(ReadFault fault, int from, int count) {
    control().fault_from = control().reads + from;
    control().fault_count = count;
    control().read_fault = fault;
  }
  int reads() const { return control().reads - base_reads_; }
  uint64_t all_bytes() const {
    uint64_t bytes = 0;
    for (const uint64_t unit : run_.unit_bytes) bytes += unit;
    return bytes;
  }
  void expect_step(uint64_t step) {
    for (uint32_t unit = 0; unit < units_.size(); ++unit) expect_unit(unit, step);
  }
  // Restores, and expects the state of step 2.
  client::CudaRestoreInfo expect_restored() {
    const auto restored = restore(view_);
    if (!restored) {
      ADD_FAILURE() << restored.error().message;
      return {};
    }
    for (const client::Restored& one : *restored) {
      EXPECT_EQ(one.version.step, 2u);
      notes_ += one.note;
    }
    expect_step(2);
    return cuda_->last_restore();
  }
  void expect_error(ckpt_status status, const std::string& text) {
    const auto restored = restore(view_);
    ASSERT_FALSE(restored);
    EXPECT_EQ(restored.error().status, status) << restored.error().message;
    EXPECT_THAT(restored.error().message, HasSubstr(text));
  }

  client::RestoreOptions view_;
  std::string notes_;
  int base_reads_ = 0;
  int drivers_left_ = 0;
};

TEST_F(CuFileTest, ReadsEveryByteFromTheFiles) {
  const auto info = expect_restored();
  EXPECT_EQ(info.bytes_direct, all_bytes());
  EXPECT_EQ(info.bytes_arena, 0u);
  EXPECT_EQ(info.reason, "");
  EXPECT_EQ(notes_, "");
  EXPECT_GT(reads(), 4);
  EXPECT_EQ(control().drivers, 1);
  // The same restore again, and the older step, with the same library.
  EXPECT_EQ(expect_restored().bytes_direct, all_bytes());
  view_.step = 1;
  ASSERT_OK(restore(view_));
  expect_step(1);
  EXPECT_EQ(control().drivers, 1);
}

TEST_F(CuFileTest, IsOffUnlessOptionOrEnvironmentEnables) {
  view_.direct = CKPT_DIRECT_DEFAULT;
  EXPECT_EQ(expect_restored().bytes_direct, 0u);
  EXPECT_EQ(reads(), 0);
  ::setenv("CKPTD_CUFILE", "required", 1);
  EXPECT_EQ(expect_restored().bytes_direct, all_bytes());
  view_.direct = CKPT_DIRECT_OFF;  // the options win
  EXPECT_EQ(expect_restored().bytes_direct, 0u);
  view_.direct = CKPT_DIRECT_DEFAULT;
  ::setenv("CKPTD_CUFILE", "always", 1);
  expect_error(CKPT_E_INVALID_ARGUMENT, "CKPTD_CUFILE=always: may be off, auto or required");
}

TEST_F(CuFileTest, MemoryLevelIsReadThroughArena) {
  save(3);
  view_.step = 3;
  view_.direct = CKPT_DIRECT_REQUIRED;
  ASSERT_OK(restore(view_));
  expect_step(3);
  EXPECT_EQ(cuda_->last_restore().bytes_arena, all_bytes());
  EXPECT_EQ(reads(), 0);
}

TEST_F(CuFileTest, MissingLibraryFallsBackToArenaWithReason) {
  ::setenv("CKPTD_CUFILE_LIBRARY", "/there/is/no/libcufile.so.0", 1);
  const auto info = expect_restored();
  EXPECT_EQ(info.bytes_arena, all_bytes());
  EXPECT_THAT(info.reason, HasSubstr("cuFile: /there/is/no/libcufile.so.0: cannot open"));
  EXPECT_EQ(notes_, "");
  view_.direct = CKPT_DIRECT_REQUIRED;
  expect_error(CKPT_E_FAILED_PRECONDITION, "/there/is/no/libcufile.so.0");
}

TEST_F(CuFileTest, LibraryWithoutNeededCallsIsNotUsed) {
  ::setenv("CKPTD_CUFILE_LIBRARY", "libc.so.6", 1);
  EXPECT_THAT(expect_restored().reason, HasSubstr("cuFileDriverOpen"));
}

TEST_F(CuFileTest, DriverThatFailsToOpenIsNotUsed) {
  control().driver_error = 5001;
  EXPECT_THAT(expect_restored().reason,
              HasSubstr("cuFile: cuFileDriverOpen: error 5001 (nvidia-fs is not loaded"));
  control().driver_error = 0;
  EXPECT_EQ(expect_restored().bytes_direct, 0u) << "it is asked once";
  view_.direct = CKPT_DIRECT_REQUIRED;
  expect_error(CKPT_E_FAILED_PRECONDITION, "error 5001");
}

TEST_F(CuFileTest, AlreadyOpenDriverIsUsed) {
  control().driver_error = 5026;
  EXPECT_EQ(expect_restored().bytes_direct, all_bytes());
}

TEST_F(CuFileTest, MissingThreadsFallBackToArenaWithReason) {
  const std::string why = "starting a thread: Resource temporarily unavailable";
  EXPECT_EQ(expect_restored().bytes_direct, all_bytes());  // the driver is open
  no_more_threads = true;
  const auto info = expect_restored();
  EXPECT_EQ(info.bytes_direct, 0u);
  EXPECT_THAT(info.reason, HasSubstr(why));
  view_.direct = CKPT_DIRECT_REQUIRED;
  expect_error(CKPT_E_RESOURCE_EXHAUSTED, why);
  no_more_threads = false;
  EXPECT_EQ(expect_restored().bytes_direct, all_bytes());
}

TEST_F(CuFileTest, DriverWithoutThreadIsNotUsed) {
  no_more_threads = true;
  EXPECT_THAT(expect_restored().reason, HasSubstr("cuFile: starting a thread"));
  no_more_threads = false;
}

// The real driver call hangs like this if the CUDA driver is missing.
TEST_F(CuFileTest, HungDriverCostsTimeoutOnce) {
  control().driver_hangs = true;
  view_.timeout_ms = 4000;  // a restore on the emulated device takes part of it
  EXPECT_THAT(expect_restored().reason, HasSubstr("has not returned within 4000 ms"));
  view_.timeout_ms = 60'000;
  EXPECT_THAT(expect_restored().reason, HasSubstr("has not returned within 4000 ms"));
  control().driver_hangs = false;  // ends the thread that was left behind
  while (control().drivers == 0) std::this_thread::yield();
  control().drivers = 0;
}

TEST_F(CuFileTest, UnregistrableFileIsReadByDaemon) {
  control().handle_error = 5008;
  const auto info = expect_restored();
  EXPECT_EQ(info.bytes_arena, all_bytes());
  EXPECT_EQ(info.reason, "cuFileHandleRegister: error 5008 (not supported by this file system)");
  EXPECT_EQ(notes_, "") << "nothing is wrong with the state";
  view_.direct = CKPT_DIRECT_REQUIRED;
  expect_error(CKPT_E_UNAVAILABLE, "cuFileHandleRegister: error 5008");
}

TEST_F(CuFileTest, UnregistrableMemoryIsFilledFromArena) {
  control().buffer_error = 5011;
  const auto info = expect_restored();
  EXPECT_EQ(info.bytes_arena, all_bytes());
  EXPECT_EQ(info.reason, "cuFileBufRegister: CUDA error 0");
  view_.direct = CKPT_DIRECT_REQUIRED;
  expect_error(CKPT_E_UNAVAILABLE, "cuFileBufRegister");
}

TEST_F(CuFileTest, ShortReadsContinue) {
  fail_reads(ReadFault::kPartial, 0, 1000);
  EXPECT_EQ(expect_restored().bytes_direct, all_bytes());
  EXPECT_EQ(notes_, "");
}

TEST_F(CuFileTest, DiskErrorIsRereadByDaemon) {
  for (const ReadFault fault : {ReadFault::kEndOfFile, ReadFault::kDiskError}) {
    notes_.clear();
    fail_reads(fault, 1, 1);
    view_.direct = CKPT_DIRECT_REQUIRED;  // an error of the disk is not an error of cuFile
    const auto info = expect_restored();
    EXPECT_GT(info.bytes_arena, 0u);
    EXPECT_GT(info.bytes_direct, 0u);
    EXPECT_EQ(info.reason, "");
    const bool ends = fault == ReadFault::kEndOfFile;
    EXPECT_THAT(notes_, HasSubstr("read by ckptd instead of the client: "));
    EXPECT_THAT(notes_, HasSubstr(ends ? "the file ends there" : "Input/output error"));
  }
}

TEST_F(CuFileTest, CuFileErrorEndsItsUseForRestore) {
  fail_reads(ReadFault::kCuFileError, 3, 1);
  const auto info = expect_restored();
  EXPECT_GT(info.bytes_arena, 0u);
  EXPECT_THAT(info.reason, HasSubstr("cuFileRead: error 5044"));
  fail_reads(ReadFault::kCuFileError, 3, 1);
  view_.direct = CKPT_DIRECT_REQUIRED;
  expect_error(CKPT_E_UNAVAILABLE, "cuFileRead: error 5044");
  fail_reads(ReadFault::kNone, 0, 0);
  EXPECT_EQ(expect_restored().reason, "") << "a new restore tries anew";
}

TEST_F(CuFileTest, WrongBytesOnDeviceAreRereadByDaemon) {
  fail_reads(ReadFault::kWrongByte, 0, 1000);
  const auto info = expect_restored();
  EXPECT_GT(info.bytes_arena, 0u);
  EXPECT_THAT(notes_, HasSubstr("instead of the client: CRC32C mismatch on the device"));
}

TEST_F(CuFileTest, DiskDamageFallsBackAsThroughArena) {
  daemon_.kill();
  damage(2, 3);
  daemon_.start();
  for (const ckpt_direct way : {CKPT_DIRECT_OFF, CKPT_DIRECT_REQUIRED}) {
    view_.direct = way;
    const auto restored = restore(view_);
    ASSERT_OK(restored);
    for (uint32_t unit = 0; unit < units_.size(); ++unit) {
      const uint64_t step = unit == 3 ? 1 : 2;
      EXPECT_EQ((*restored)[2 * unit].version.step, step) << "unit " << unit;
      EXPECT_EQ((*restored)[2 * unit].note.empty(), unit != 3);
      EXPECT_EQ((*restored)[2 * unit].bytes_disk + (*restored)[2 * unit + 1].bytes_disk,
                units_[unit].size());
      expect_unit(unit, step);
    }
    EXPECT_THAT((*restored)[6].note, HasSubstr("step 1 instead of 2: segment"));
  }
  std::string through_arena;
  for (const ckpt_direct way : {CKPT_DIRECT_OFF, CKPT_DIRECT_REQUIRED}) {
    view_.exact = true;
    view_.direct = way;
    const auto restored = restore(view_);
    ASSERT_FALSE(restored);
    EXPECT_EQ(restored.error().status, CKPT_E_CORRUPT);
    if (way == CKPT_DIRECT_OFF) through_arena = restored.error().message;
    EXPECT_EQ(restored.error().message, through_arena);
  }
}

TEST_F(CuFileTest, RestoreContinuesAfterDaemonRestart) {
  control().context = &daemon_;
  base_reads_ = control().reads;
  control().on_read = [](void* daemon, int) {
    // Only the first of the four threads restarts the daemon.
    if (control().on_read.exchange(nullptr) == nullptr) return;
    static_cast<DaemonProcess*>(daemon)->crash_and_restart();
  };
  const auto info = expect_restored();
  EXPECT_GE(info.bytes_direct, all_bytes()) << "what came twice counts twice";
}

TEST_F(CuFileTest, HungReadTimesOutAndKeepsItsMemory) {
  control().reads_hang = true;
  view_.timeout_ms = 4000;  // a restore on the emulated device takes part of it
  expect_error(CKPT_E_DEADLINE_EXCEEDED, "was not read by cuFile within 4000 ms");
  EXPECT_GT(control().buffers, 0) << "cuFile may still write there";
  expect_error(CKPT_E_UNAVAILABLE, "an earlier restore still uses the device: cuFileRead");
  control().reads_hang = false;
  view_.timeout_ms = 60'000;
  client::Outcome<std::vector<client::Restored>> restored = restore(view_);
  while (!restored && restored.error().status == CKPT_E_UNAVAILABLE) restored = restore(view_);
  ASSERT_OK(restored);
  expect_step(2);
}

// Copies, unpacking and earlier work on the trainer's stream, late or early against each other.
TEST_F(CuFileTest, RestoresWithAnyStreamLate) {
  for (unsigned streams = 0; streams < 4; ++streams) {
    SCOPED_TRACE(streams);
    fail_reads(ReadFault::kDiskError, 2, 1);  // gives windows of both kinds
    ASSERT_OK(cuda_->trim());                 // makes the streams anew
    cuda_emulator::make_eager(streams);
    const auto info = expect_restored();
    EXPECT_GT(info.bytes_arena, 0u);
    EXPECT_GT(info.bytes_direct, 0u);
  }
  cuda_emulator::make_eager(0);
}

TEST_F(CuFileTest, CallsOfCudaThatFailLeaveNothingBehind) {
  expect_restored();
  ASSERT_OK(cuda_->trim());
  const cuda_emulator::Holdings before = cuda_emulator::holdings();
  bool failed = true;
  // Fails each of the first calls, then ever fewer: the reading threads vary the order of calls.
  for (uint64_t number = 0; failed && !HasFailure(); number += 1 + number / 8) {
    SCOPED_TRACE(testing::Message() << "call " << number);
    spoil();
    ASSERT_FALSE(trainer_->wait());
    cuda_emulator::fail_calls(number, 1);
    const auto restored = cuda_->restore(view_, destinations(), trainer_->stream());
    failed = cuda_emulator::calls_made() > number;
    cuda_emulator::fail_no_calls();
    if (restored) expect_step(2);
    expect_restored();
    ASSERT_OK(cuda_->trim());
    EXPECT_EQ(cuda_emulator::holdings(), before);
    EXPECT_EQ(control().buffers, 0);
  }
}

TEST_F(CuFileTest, SnapshotsAlternateWithRestores) {
  for (uint64_t step = 3; step < 6; ++step) {
    EXPECT_EQ(expect_restored().bytes_direct, all_bytes());
    save(step);
  }
}

}  // namespace
}  // namespace ckpt::test
