// A launch: blocks one after the other, the threads of a block as fibers.
#include <dlfcn.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
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
constexpr uint64_t kStackEnd = 0x6b63617473206e75;  // at a stack's lowest address

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "cuda_emulator: %s\n", what);
  std::abort();
}

// Announces a change of stacks to AddressSanitizer. `fake` keeps the fake stack of the side that is
// left. A side that does not come back loses its fake stack.
struct StackSwitch {
  void* fake = nullptr;
  const void* bottom = nullptr;
  size_t bytes = 0;
  void leave([[maybe_unused]] const void* to, [[maybe_unused]] size_t to_bytes,
             [[maybe_unused]] bool returns) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(returns ? &fake : nullptr, to, to_bytes);
#endif
  }
  void arrive([[maybe_unused]] StackSwitch* from) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake, from == nullptr ? nullptr : &from->bottom,
                                    from == nullptr ? nullptr : &from->bytes);
#endif
  }
};

// Stacks outlive the thread that they were made for: fibers of later threads reuse them.
class Stacks {
 public:
  static char* take() {
    const std::scoped_lock lock(mutex());
    std::vector<char*>& free = kept();
    if (free.empty()) return map();
    char* const stack = free.back();
    free.pop_back();
    return stack;
  }
  static void release(char* stack) {
#ifdef __SANITIZE_ADDRESS__
    ASAN_UNPOISON_MEMORY_REGION(stack, kStackBytes);  // some frames were never left
#endif
    const std::scoped_lock lock(mutex());
    kept().push_back(stack);
  }

 private:
  static char* map() {
    void* const stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) die("no memory for the stack of a thread");
    std::memcpy(stack, &kStackEnd, sizeof kStackEnd);
    return static_cast<char*>(stack);
  }
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::vector<char*>& kept() {
    static auto* const all = new std::vector<char*>;  // threads end after statics, too
    return *all;
  }
};

// The point at which a stack resumes. The first entry into a fiber uses ucontext. Later ones use
// _setjmp and _longjmp: these make no system call, and under AddressSanitizer they do not clear
// the shadow of the whole stack, as each swapcontext does.
struct Resumption {
  ucontext_t context{};
  jmp_buf jump{};
  bool entered = false;
};

// Calls the C library's _longjmp through a type that may return. Before calls that cannot return,
// AddressSanitizer asks the kernel for the signal stack, and clears the shadow of everything above
// on the stack.
void jump(Resumption& to) {
  static const auto real =
      reinterpret_cast<void (*)(__jmp_buf_tag*, int)>(::dlsym(RTLD_NEXT, "_longjmp"));
  if (real == nullptr) die("there is no _longjmp");
  real(to.jump, 1);
}

// Resumes `to`. Returns when another stack resumes `from`.
void switch_stacks(Resumption& from, Resumption& to) {
  if (_setjmp(from.jump) != 0) return;
  if (to.entered) jump(to);
  to.entered = true;
  ::setcontext(&to.context);
}

// A barrier of a group of threads, with numbered rounds. Threads that have ended are not awaited.
class Barrier {
 public:
  explicit Barrier(size_t threads) : threads_(threads) {}
  // Returns the round that releases the calling thread.
  uint64_t arrive() {
    const uint64_t round = rounds_ + 1;
    ++arrived_;
    release_if_full();
    return round;
  }
  void leave() {
    --threads_;
    release_if_full();
  }
  uint64_t rounds() const { return rounds_; }

 private:
  void release_if_full() {
    if (arrived_ == 0 || arrived_ < threads_) return;
    ++rounds_;
    arrived_ = 0;
  }

  size_t threads_;
  size_t arrived_ = 0;
  uint64_t rounds_ = 0;
};

// A fiber for one thread index. It runs that thread of every block of a host thread in turn.
struct Fiber {
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber() { Stacks::release(stack); }

  Resumption place;
  char* const stack = Stacks::take();
  StackSwitch stack_switch;
  uint3 index{};
  bool done = false;
  const Barrier* waits_at = nullptr;
  uint64_t waits_for = 0;  // a round of `waits_at`
  uint64_t given = 0;      // to exchange()
};

class Block {
 public:
  static Block& of_this_thread() {
    static thread_local Block block;
    return block;
  }
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();
  void run(const std::function<void()>& thread, uint3 index, dim3 size, dim3 grid);

  void sync_threads() { wait(of_block_); }
  // True if all threads that have not ended give true.
  bool sync_threads_and(bool mine) {
    fibers_[current_]->given = mine ? 1 : 0;
    sync_threads();
    bool all = true;
    for (size_t i = 0; i < count_; ++i) {
      all = all && (fibers_[i]->done || fibers_[i]->given != 0);
    }
    sync_threads();  // no thread may give its next value before all have read these
    return all;
  }
  void sync_warp() { wait(of_warps_[current_ / kWarp]); }
  unsigned lane() const { return current_ % kWarp; }
  uint64_t exchange(uint64_t mine, unsigned from) {
    fibers_[current_]->given = mine;
    sync_warp();
    check_whole_warp();
    const size_t partner = current_ / kWarp * kWarp + from;
    // Lanes that do not exist, because the block cuts the warp short, give the caller's own value.
    const uint64_t theirs = partner < count_ ? fibers_[partner]->given : mine;
    sync_warp();  // no lane may give its next value before all have read this one
    return theirs;
  }
  unsigned ballot(bool mine) {
    fibers_[current_]->given = mine ? 1 : 0;
    sync_warp();
    check_whole_warp();
    unsigned votes = 0;
    const size_t first = current_ / kWarp * kWarp;
    for (size_t i = first; i < std::min(first + kWarp, count_); ++i) {
      if (fibers_[i]->given != 0) votes |= 1u << (i - first);
    }
    sync_warp();
    return votes;
  }

 private:
  static void entry();
  static std::unique_ptr<Fiber> make_fiber();
  void wait(Barrier& barrier);
  void check_whole_warp() const;
  void back_to_scheduler();
  void resume(size_t which);

  std::vector<std::unique_ptr<Fiber>> fibers_;
  size_t count_ = 0;
  size_t current_ = 0;
  Barrier of_block_{0};
  std::vector<Barrier> of_warps_;
  const std::function<void()>* thread_ = nullptr;
  bool ending_ = false;  // the fibers leave for good
  Resumption scheduler_{.context = {}, .jump = {}, .entered = true};
  StackSwitch scheduler_switch_;
  std::minstd_rand random_{20241121};
};

void Block::entry() {
  Block& block = of_this_thread();
  Fiber& fiber = *block.fibers_[block.current_];
  fiber.stack_switch.arrive(&block.scheduler_switch_);
  while (!block.ending_) {
    (*block.thread_)();
    fiber.done = true;
    block.back_to_scheduler();
  }
  fiber.stack_switch.leave(block.scheduler_switch_.bottom, block.scheduler_switch_.bytes, false);
  switch_stacks(fiber.place, block.scheduler_);
}

void Block::back_to_scheduler() {
  Fiber& fiber = *fibers_[current_];
  fiber.stack_switch.leave(scheduler_switch_.bottom, scheduler_switch_.bytes, true);
  switch_stacks(fiber.place, scheduler_);
  fiber.stack_switch.arrive(&scheduler_switch_);
}

Block::~Block() {
  ending_ = true;
  for (size_t i = 0; i < fibers_.size(); ++i) resume(i);
}

void Block::resume(size_t which) {
  current_ = which;
  Fiber& fiber = *fibers_[which];
  threadIdx = fiber.index;
  scheduler_switch_.leave(fiber.stack, kStackBytes, true);
  switch_stacks(scheduler_, fiber.place);
  scheduler_switch_.arrive(nullptr);
}

void Block::wait(Barrier& barrier) {
  Fiber& fiber = *fibers_[current_];
  fiber.waits_at = &barrier;
  fiber.waits_for = barrier.arrive();
  back_to_scheduler();
}

// A GPU waits for named lanes that have ended, or reads arbitrary values. Every exchange here names
// the whole warp.
void Block::check_whole_warp() const {
  const size_t first = current_ / kWarp * kWarp;
  for (size_t i = first; i < std::min(first + kWarp, count_); ++i) {
    if (fibers_[i]->done) die("a warp exchanges values with a lane that has ended");
  }
}

std::unique_ptr<Fiber> Block::make_fiber() {
  auto fiber = std::make_unique<Fiber>();
  ::getcontext(&fiber->place.context);
  fiber->place.context.uc_stack.ss_sp = fiber->stack;
  fiber->place.context.uc_stack.ss_size = kStackBytes;
  fiber->place.context.uc_link = nullptr;
  ::makecontext(&fiber->place.context, &Block::entry, 0);
  return fiber;
}

void Block::run(const std::function<void()>& thread, uint3 index, dim3 size, dim3 grid) {
  thread_ = &thread;
  count_ = size_t{size.x} * size.y * size.z;
  blockIdx = index;
  blockDim = size;
  gridDim = grid;
  while (fibers_.size() < count_) fibers_.push_back(make_fiber());
  of_block_ = Barrier(count_);
  of_warps_.clear();
  for (size_t first = 0; first < count_; first += kWarp) {
    of_warps_.emplace_back(std::min<size_t>(kWarp, count_ - first));
  }
  std::vector<size_t> order(count_);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = 0; i < count_; ++i) {
    Fiber& fiber = *fibers_[i];
    const auto flat = static_cast<unsigned>(i);
    fiber.index = {flat % size.x, flat / size.x % size.y, flat / size.x / size.y};
    fiber.done = false;
    fiber.waits_at = nullptr;
  }
  size_t left = count_;
  while (left > 0) {
    std::shuffle(order.begin(), order.end(), random_);
    bool moved = false;
    for (const size_t which : order) {
      const Fiber& fiber = *fibers_[which];
      if (fiber.done) continue;
      if (fiber.waits_at != nullptr && fiber.waits_at->rounds() < fiber.waits_for) continue;
      moved = true;
      resume(which);
      if (!fiber.done) continue;
      if (std::memcmp(fiber.stack, &kStackEnd, sizeof kStackEnd) != 0) {
        die("a thread of a block has used more than its stack");
      }
      --left;
      of_block_.leave();
      of_warps_[which / kWarp].leave();
    }
    if (!moved) die("the threads of a block wait at different barriers");
  }
}

}  // namespace

void sync_threads() { Block::of_this_thread().sync_threads(); }
bool sync_threads_and(bool mine) { return Block::of_this_thread().sync_threads_and(mine); }
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
