#include "bench/common/raw_disk.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/common/scratch.h"
#include "ckptd/io/huge_pages.h"
#include "formats/base/unique_fd.h"

namespace bench {

using ckpt::ErrorCode;
using ckpt::make_error;

namespace {

ckpt::Error failed(const std::string& what, int error) {
  return make_error(ErrorCode::kIo, "{}: {}", what, std::strerror(error));
}

class Ring {
 public:
  static Result<std::unique_ptr<Ring>> open(unsigned depth, ckpt::MutableByteView pool) {
    auto ring = std::make_unique<Ring>();
    const int opened = io_uring_queue_init(depth, &ring->ring_, 0);
    if (opened < 0) return failed("io_uring", -opened);
    ring->open_ = true;
    const iovec whole{pool.data(), pool.size()};
    const int registered = io_uring_register_buffers(&ring->ring_, &whole, 1);
    if (registered < 0) return failed("registering the pool with io_uring", -registered);
    return ring;
  }
  ~Ring() {
    if (open_) io_uring_queue_exit(&ring_);
  }
  io_uring* get() { return &ring_; }

 private:
  io_uring ring_{};
  bool open_ = false;
};

enum class Direction { kWrite, kRead };

constexpr double kFioGainMin = 1.03;

const char* name_of(Direction direction) {
  return direction == Direction::kWrite ? "write" : "read";
}

// From the first submission to the last completion; a write is synced, too.
Result<double> transfer(int fd, Direction direction, uint64_t bytes, const RawConfig& config,
                        ckpt::MutableByteView pool) {
  CKPT_ASSIGN(const auto ring, Ring::open(config.depth, pool));
  const auto start = std::chrono::steady_clock::now();
  uint64_t submitted = 0;
  uint64_t completed = 0;
  while (completed < bytes) {
    while (submitted < bytes && submitted - completed < config.depth * config.request_bytes) {
      io_uring_sqe* sqe = io_uring_get_sqe(ring->get());
      if (sqe == nullptr) break;
      const uint64_t length = std::min(config.request_bytes, bytes - submitted);
      std::byte* const place = pool.data() + submitted % pool.size();
      if (direction == Direction::kWrite) {
        io_uring_prep_write_fixed(sqe, fd, place, static_cast<unsigned>(length), submitted, 0);
      } else {
        io_uring_prep_read_fixed(sqe, fd, place, static_cast<unsigned>(length), submitted, 0);
      }
      io_uring_sqe_set_data64(sqe, length);
      submitted += length;
    }
    const int waited = io_uring_submit_and_wait(ring->get(), 1);
    if (waited < 0 && waited != -EINTR) return failed("io_uring_submit_and_wait", -waited);
    io_uring_cqe* completion = nullptr;
    while (io_uring_peek_cqe(ring->get(), &completion) == 0) {
      const auto expected = static_cast<int64_t>(io_uring_cqe_get_data64(completion));
      const std::string what = fmt::format("raw {}", name_of(direction));
      if (completion->res < 0) return failed(what, -completion->res);
      if (completion->res != expected) return failed(what + " was cut short", EIO);
      completed += static_cast<uint64_t>(expected);
      io_uring_cqe_seen(ring->get(), completion);
    }
  }
  if (direction == Direction::kWrite && ::fdatasync(fd) != 0) return failed("fdatasync", errno);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return static_cast<double>(bytes) / elapsed.count();
}

Result<double> run_fio(const std::string& path, Direction direction, uint64_t bytes,
                       const RawConfig& config) {
  const std::string command = fmt::format(
      "fio --name=limit --filename='{}' --rw={} --bs={} --iodepth={} --size={} "
      "--ioengine=io_uring --direct=1 --fixedbufs=1 --fallocate=none --end_fsync=1 "
      "--output-format=json 2>/dev/null",
      path, name_of(direction), config.request_bytes, config.depth, bytes);
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  if (pipe == nullptr) return failed("fio", errno);
  std::string output;
  char buffer[4096];
  for (size_t got = 0; (got = ::fread(buffer, 1, sizeof(buffer), pipe.get())) > 0;) {
    output.append(buffer, got);
  }
  const auto json = nlohmann::json::parse(output, nullptr, false);
  const nlohmann::json::json_pointer speed(fmt::format("/jobs/0/{}/bw_bytes", name_of(direction)));
  if (json.is_discarded() || !json.contains(speed) || json.at(speed).get<double>() <= 0) {
    return make_error(ErrorCode::kUnavailable, "fio gave no result");
  }
  return json.at(speed).get<double>();
}

Result<double> run_once(int fd, const std::string& path, Direction direction, uint64_t bytes,
                        const RawConfig& config, ckpt::MutableByteView pool) {
  return config.fio ? run_fio(path, direction, bytes, config)
                    : transfer(fd, direction, bytes, config, pool);
}

// A new file with all its blocks in place and nothing in them, as a segment is when it is made.
Result<ckpt::base::UniqueFd> make_file(const std::string& path, uint64_t bytes) {
  ckpt::base::UniqueFd fd(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600));
  if (!fd.valid()) return failed(path, errno);
  if (::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0) {
    return failed("fallocate", errno);
  }
  if (::fsync(fd.get()) != 0) return failed("fsync", errno);
  return fd;
}

}  // namespace

Result<ckpt::ArenaMapping> make_raw_pool() {
  constexpr ckpt::ArenaLayout kLayout{.slab_bytes = 64ull << 20, .slab_count = 8};
  CKPT_ASSIGN(auto pool, ckpt::ArenaMapping::create(kLayout));
  ckptd::make_huge_pages(pool.mapping.bytes());
  fill_random(pool.mapping.bytes(), 1);
  return std::move(pool.mapping);
}

void LimitFiles::clear() {
  for (; removed_ < made_; ++removed_) {
    ::unlink(fmt::format("{}/limit-{}", directory_, removed_).c_str());
  }
  settle(directory_);
}

std::string RawConfig::name() const {
  return fmt::format("{}, depth {}, {} MiB", fio ? "fio io_uring" : "io_uring loop", depth,
                     request_bytes >> 20);
}

bool fio_installed() { return ::system("fio --version >/dev/null 2>&1") == 0; }

Result<double> raw_write(const std::string& path, uint64_t bytes, const RawConfig& config,
                         ckpt::MutableByteView pool) {
  CKPT_ASSIGN(const auto fd, make_file(path, bytes));
  return run_once(fd.get(), path, Direction::kWrite, bytes, config, pool);
}

Result<double> raw_rewrite(const std::string& path, uint64_t bytes, const RawConfig& config,
                           ckpt::MutableByteView pool) {
  CKPT_ASSIGN(const auto fd, make_file(path, bytes));
  CKPT_TRY(run_once(fd.get(), path, Direction::kWrite, bytes, config, pool));
  return run_once(fd.get(), path, Direction::kWrite, bytes, config, pool);
}

Result<double> raw_read(const std::string& path, uint64_t bytes, const RawConfig& config,
                        ckpt::MutableByteView pool) {
  const ckpt::base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  if (!fd.valid()) return failed(path, errno);
  return run_once(fd.get(), path, Direction::kRead, bytes, config, pool);
}

Result<RawConfig> sweep(const std::function<Result<double>(const RawConfig&)>& run,
                        const std::function<void(const std::string&)>& progress) {
  std::vector<RawConfig> candidates;
  for (const unsigned depth : {8u, 16u, 32u}) {
    for (const uint64_t size : {1ull << 20, 4ull << 20, 16ull << 20}) {
      candidates.push_back({.depth = depth, .request_bytes = size});
    }
  }
  if (fio_installed()) {
    for (const uint64_t size : {1ull << 20, 4ull << 20}) {
      candidates.push_back({.depth = 16, .request_bytes = size, .fio = true});
    }
  }
  RawConfig best;
  double best_speed = 0;
  for (const RawConfig& candidate : candidates) {
    double speed = 0;
    for (int i = 0; i < 2; ++i) {
      CKPT_ASSIGN(const double once, run(candidate));
      speed = std::max(speed, once);
    }
    progress(fmt::format("sweep: {}: {:.2f} GB/s", candidate.name(), speed / 1e9));
    // Another program's loop has its start and its end in the time of every sample: it has to be
    // worth that.
    const double handicap = candidate.fio ? kFioGainMin : 1;
    if (speed > best_speed * handicap) {
      best_speed = speed;
      best = candidate;
    }
  }
  return best;
}

}  // namespace bench
