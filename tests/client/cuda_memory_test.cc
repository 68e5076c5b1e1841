// Device memory that cudaMalloc did not make: pools of virtual memory, as PyTorch's expandable
// segments, and memory of another process. Runs on a GPU, or on the emulated one.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/client/cuda_round_trip.h"
#include "tests/support/expandable_segment.h"

namespace ckpt::test {
namespace {

// Device memory of another process, open in this one.
class ForeignMemory {
 public:
  explicit ForeignMemory(uint64_t bytes) {
    EXPECT_EQ(::pipe(in_), 0);
    EXPECT_EQ(::pipe(out_), 0);
    posix_spawn_file_actions_t actions{};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in_[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out_[1], STDOUT_FILENO);
    for (const int end : {in_[0], in_[1], out_[0], out_[1]}) {
      posix_spawn_file_actions_addclose(&actions, end);
    }
    std::string program = CUDA_MEMORY_OWNER_PROGRAM;
    std::string size = std::to_string(bytes);
    char* const arguments[] = {program.data(), size.data(), nullptr};
    ::setenv("CUDA_EMULATOR_SHARES", "1", 1);
    EXPECT_EQ(::posix_spawn(&owner_, program.c_str(), &actions, nullptr, arguments, environ), 0);
    ::unsetenv("CUDA_EMULATOR_SHARES");
    posix_spawn_file_actions_destroy(&actions);
    ::close(in_[0]);
    ::close(out_[1]);
    open();
  }
  ~ForeignMemory() {
    EXPECT_TRUE(at_ == nullptr || cudaIpcCloseMemHandle(at_) == cudaSuccess);
    ::close(in_[1]);
    ::close(out_[0]);
    int status = -1;
    EXPECT_EQ(::waitpid(owner_, &status, 0), owner_);
    EXPECT_EQ(status, 0);
  }
  ForeignMemory(const ForeignMemory&) = delete;
  ForeignMemory& operator=(const ForeignMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(at_); }

 private:
  void open() {
    cudaIpcMemHandle_t handle{};
    std::string text(2 * sizeof handle, '\0');
    size_t got = 0;
    while (got < text.size()) {
      const ssize_t more = ::read(out_[0], text.data() + got, text.size() - got);
      ASSERT_GT(more, 0) << "the owner has no memory to share";
      got += static_cast<size_t>(more);
    }
    auto* const raw = reinterpret_cast<unsigned char*>(&handle);
    for (size_t i = 0; i < sizeof handle; ++i) {
      raw[i] = static_cast<unsigned char>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
    }
    ASSERT_EQ(cudaIpcOpenMemHandle(&at_, handle, cudaIpcMemLazyEnablePeerAccess), cudaSuccess);
  }

  int in_[2] = {-1, -1};
  int out_[2] = {-1, -1};
  pid_t owner_ = -1;
  void* at_ = nullptr;
};

class CudaMemoryTest : public RoundTripTest {
 protected:
  // Saves from `memory`, at an odd address, and restores to there.
  void expect_round_trip(std::byte* memory) {
    ASSERT_NE(memory, nullptr);
    ASSERT_EQ(open_cuda(), CKPT_OK);
    pieces_.clear();
    into_.clear();
    std::byte* to = memory + 1;
    for (uint32_t unit = 0; unit < data_.size(); ++unit) {
      const uint64_t bytes = data_[unit].size();
      pieces_.push_back({unit, 0, to, bytes});
      into_.push_back({unit, 0, to, bytes});
      to += bytes;
    }
    refill();
    ASSERT_TRUE(save()) << ckpt_cuda_error(cuda_);
    expect_saved();
    spoil_destinations();
    ASSERT_TRUE(restore()) << ckpt_cuda_error(cuda_);
    expect_restored();
    EXPECT_EQ(ckpt_cuda_close(std::exchange(cuda_, nullptr)), CKPT_OK);
  }
  static constexpr uint64_t kBytes = 200'000;
  static constexpr uint64_t kRoom = kBytes + 64;  // the other units, and the odd address
};

TEST_F(CudaMemoryTest, AnExpandableSegmentIsSavedAndRestored) {
  connect(kBytes);
  const auto segment = ExpandableSegment::make(kRoom);
  ASSERT_TRUE(segment.ok()) << segment.error().message;
  expect_round_trip((*segment)->data());
}

TEST_F(CudaMemoryTest, MemoryOfAnotherProcessIsSavedAndRestored) {
  connect(kBytes);
  const ForeignMemory memory(kRoom);
  expect_round_trip(memory.data());
}

}  // namespace
}  // namespace ckpt::test
