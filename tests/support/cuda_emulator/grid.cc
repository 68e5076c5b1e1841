// A launch: blocks one after the other, the threads of a block as fibers.
#include <ucontext.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "tests/support/cuda_emulator/emulator.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

thread_local uint3 threadIdx;
thread_local uint3 blockIdx;
thread_local dim3 blockDim;
thread_local dim3 gridDim;

namespace cuda_emulator {
namespace {

constexpr size_t kStackBytes = 128u << 10;
constexpr unsigned kWarp = 32;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "cuda_emulator: %s\n", what);
  std::abort();
}

// What AddressSanitizer must know of a change of stacks. `save` keeps what the fiber that is left
// has on its fake stack; null says that it does not come back.
struct StackSwitch {
  void* fake = nullptr;
  const void* bottom = nullptr;
  size_t bytes = 0;
  void leave([[maybe_unused]] const void* to, [[maybe_unused]] size_t to_bytes,
             [[maybe_unused]] bool comes_back) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(comes_back ? &fake : nullptr, to, to_bytes);
#endif
  }
  void arrive([[maybe_unused]] StackSwitch* from) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake, from == nullptr ? nullptr : &from->bottom,
                                    from == nullptr ? nullptr : &from->bytes);
#endif
  }
};

// Where a stack of threads goes on. The first entry into a fiber is ucontext's; from then on
// _setjmp and _longjmp do the same without a system call, and under AddressSanitizer without the
// clearing of the whole stack's shadow that goes with each of its swapcontexts.
struct Resumption {
  ucontext_t context{};
  jmp_buf jump{};
  bool entered = false;
};

// Goes on at `to`; returns when somebody goes on at `from`.
void switch_stacks(Resumption& from, Resumption& to) {
  if (_setjmp(from.jump) != 0) return;
  if (to.entered) _longjmp(to.jump, 1);
  to.entered = true;
  ::setcontext(&to.context);
}

struct Fiber {
  Resumption place;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  StackSwitch stack_switch;
  uint3 index{};
  bool done = false;
  // How many barriers of each kind it has come to, and whether it waits at one.
  uint64_t block_barrier = 0;
  uint64_t warp_barrier = 0;
  bool waits_block = false;
  bool waits_warp = false;
  uint64_t given = 0;  // to exchange()
};

class Block {
 public:
  static Block& of_this_thread() {
    static thread_local Block block;
    return block;
  }
  void run(const std::function<void()>& thread, uint3 index, dim3 size, dim3 grid);

  void sync_threads() { wait(&Fiber::block_barrier, &Fiber::waits_block); }
  void sync_warp() { wait(&Fiber::warp_barrier, &Fiber::waits_warp); }
  unsigned lane() const { return current_ % kWarp; }
  uint64_t exchange(uint64_t mine, unsigned from) {
    fibers_[current_]->given = mine;
    sync_warp();
    const size_t partner = current_ / kWarp * kWarp + from;
    const bool there = partner < count_ && !fibers_[partner]->done;
    const uint64_t theirs = there ? fibers_[partner]->given : mine;
    sync_warp();  // nobody may give the next before all have this one
    return theirs;
  }
  unsigned ballot(bool mine) {
    fibers_[current_]->given = mine ? 1 : 0;
    sync_warp();
    unsigned votes = 0;
    const size_t first = current_ / kWarp * kWarp;
    for (size_t i = first; i < std::min(first + kWarp, count_); ++i) {
      if (!fibers_[i]->done && fibers_[i]->given != 0) votes |= 1u << (i - first);
    }
    sync_warp();
    return votes;
  }

 private:
  static void entry();
  static void start(Fiber& fiber);
  void wait(uint64_t Fiber::*barrier, bool Fiber::*waits);
  void back_to_scheduler(bool for_good);
  void resume(size_t which);
  bool can_go_on(const Fiber& fiber, size_t which) const;
  bool all_there(size_t begin, size_t end, uint64_t Fiber::*barrier, uint64_t at) const;

  std::vector<std::unique_ptr<Fiber>> fibers_;
  size_t count_ = 0;
  size_t current_ = 0;
  const std::function<void()>* thread_ = nullptr;
  Resumption scheduler_{.context = {}, .jump = {}, .entered = true};
  StackSwitch scheduler_switch_;
  std::minstd_rand random_{20241121};
};

void Block::entry() {
  Block& block = of_this_thread();
  Fiber& fiber = *block.fibers_[block.current_];
  fiber.stack_switch.arrive(&block.scheduler_switch_);
  (*block.thread_)();
  fiber.done = true;
  block.back_to_scheduler(true);
}

void Block::back_to_scheduler(bool for_good) {
  Fiber& fiber = *fibers_[current_];
  fiber.stack_switch.leave(scheduler_switch_.bottom, scheduler_switch_.bytes, !for_good);
  switch_stacks(fiber.place, scheduler_);
  fiber.stack_switch.arrive(&scheduler_switch_);
}

void Block::resume(size_t which) {
  current_ = which;
  Fiber& fiber = *fibers_[which];
  threadIdx = fiber.index;
  scheduler_switch_.leave(fiber.stack.get(), kStackBytes, true);
  switch_stacks(scheduler_, fiber.place);
  scheduler_switch_.arrive(nullptr);
}

void Block::wait(uint64_t Fiber::*barrier, bool Fiber::*waits) {
  Fiber& fiber = *fibers_[current_];
  ++(fiber.*barrier);
  fiber.*waits = true;
  back_to_scheduler(false);
  fiber.*waits = false;
}

bool Block::all_there(size_t begin, size_t end, uint64_t Fiber::*barrier, uint64_t at) const {
  for (size_t i = begin; i < end; ++i) {
    if (!fibers_[i]->done && (*fibers_[i]).*barrier < at) return false;
  }
  return true;
}

bool Block::can_go_on(const Fiber& fiber, size_t which) const {
  if (fiber.waits_block) return all_there(0, count_, &Fiber::block_barrier, fiber.block_barrier);
  if (!fiber.waits_warp) return true;
  const size_t first = which / kWarp * kWarp;
  return all_there(first, std::min(first + kWarp, count_), &Fiber::warp_barrier,
                   fiber.warp_barrier);
}

void Block::start(Fiber& fiber) {
  fiber.place.entered = false;
  fiber.stack_switch = {};  // the fake stack of its last run is gone
  ::getcontext(&fiber.place.context);
  fiber.place.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.place.context.uc_stack.ss_size = kStackBytes;
  fiber.place.context.uc_link = nullptr;
  ::makecontext(&fiber.place.context, &Block::entry, 0);
}

void Block::run(const std::function<void()>& thread, uint3 index, dim3 size, dim3 grid) {
  thread_ = &thread;
  count_ = size_t{size.x} * size.y * size.z;
  blockIdx = index;
  blockDim = size;
  gridDim = grid;
  while (fibers_.size() < count_) fibers_.push_back(std::make_unique<Fiber>());
  std::vector<size_t> order(count_);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = 0; i < count_; ++i) {
    Fiber& fiber = *fibers_[i];
    const auto flat = static_cast<unsigned>(i);
    fiber.index = {flat % size.x, flat / size.x % size.y, flat / size.x / size.y};
    fiber.done = fiber.waits_block = fiber.waits_warp = false;
    fiber.block_barrier = fiber.warp_barrier = 0;
    start(fiber);
  }
  size_t left = count_;
  while (left > 0) {
    std::shuffle(order.begin(), order.end(), random_);
    bool moved = false;
    for (const size_t which : order) {
      const Fiber& fiber = *fibers_[which];
      if (fiber.done || !can_go_on(fiber, which)) continue;
      moved = true;
      resume(which);
      if (fiber.done) --left;
    }
    if (!moved) die("the threads of a block wait at different barriers");
  }
}

}  // namespace

void sync_threads() { Block::of_this_thread().sync_threads(); }
void sync_warp() { Block::of_this_thread().sync_warp(); }
unsigned lane() { return Block::of_this_thread().lane(); }
unsigned ballot(bool mine) { return Block::of_this_thread().ballot(mine); }
uint64_t exchange_bits(uint64_t mine, unsigned from) {
  return Block::of_this_thread().exchange(mine, from);
}

void run_grid(dim3 grid, dim3 size, const std::function<void()>& thread) {
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        Block::of_this_thread().run(thread, {x, y, z}, size, grid);
      }
    }
  }
}

}  // namespace cuda_emulator
