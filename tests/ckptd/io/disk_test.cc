// The contract of Disk, on all three engines.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <optional>

#include "ckptd/limits.h"
#include "tests/ckptd/io/disk_fixture.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::kBlockBytes;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_P(DiskTest, ReadsWhatWasWritten) {
  const FileId file = create("a", 1 << 20);
  const AlignedBuffer data = random_bytes(64 * kBlockBytes, 1);
  ASSERT_TRUE(write_blocking(*disk_, file, 3 * kBlockBytes, data.bytes()).ok());
  ASSERT_TRUE(sync_blocking(*disk_, file).ok());

  AlignedBuffer back(data.size());
  auto read = read_blocking(*disk_, file, 3 * kBlockBytes, back.bytes());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, data.size());
  EXPECT_TRUE(std::ranges::equal(back.bytes(), data.bytes()));

  AlignedBuffer before(3 * kBlockBytes);
  ASSERT_TRUE(read_blocking(*disk_, file, 0, before.bytes()).ok());
  EXPECT_TRUE(ckpt::base::all_zero(before.bytes())) << "preallocated space reads as zeros";
  disk_->close(file);
}

TEST_P(DiskTest, ReadIsShortAtEndOfFile) {
  const FileId file = create("a");
  const AlignedBuffer data = random_bytes(2 * kBlockBytes, 2);
  ASSERT_TRUE(write_blocking(*disk_, file, 0, data.bytes()).ok());
  AlignedBuffer back(8 * kBlockBytes);
  auto read = read_blocking(*disk_, file, kBlockBytes, back.bytes());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, kBlockBytes);
  read = read_blocking(*disk_, file, 4 * kBlockBytes, back.bytes());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, 0u);
  disk_->close(file);
}

TEST_P(DiskTest, CompletesMoreRequestsThanTheRingHolds) {
  const size_t count = 3 * limits::kRingEntries;
  const FileId file = create("a", count * kBlockBytes);
  const AlignedBuffer data = random_bytes(count * kBlockBytes, 3);
  size_t completed = 0;
  for (size_t i = 0; i < count; ++i) {
    auto memory = const_cast<AlignedBuffer&>(data).bytes().subspan(i * kBlockBytes, kBlockBytes);
    disk_->submit({.op = IoOp::kWrite,
                   .file = file,
                   .offset = i * kBlockBytes,
                   .memory = memory,
                   .on_done = [&completed](Result<uint64_t> result) {
                     ASSERT_TRUE(result.ok());
                     EXPECT_EQ(*result, kBlockBytes);
                     ++completed;
                   }});
  }
  EXPECT_EQ(completed, 0u) << "no completion runs inside submit()";
  EXPECT_EQ(disk_->in_flight(), count);
  drain();
  EXPECT_EQ(completed, count);
  AlignedBuffer back(data.size());
  ASSERT_TRUE(read_blocking(*disk_, file, 0, back.bytes()).ok());
  EXPECT_TRUE(std::ranges::equal(back.bytes(), data.bytes()));
  disk_->close(file);
}

TEST_P(DiskTest, ACompletionMaySubmit) {
  const FileId file = create("a", 1 << 20);
  AlignedBuffer data = random_bytes(kBlockBytes, 4);
  int chain = 0;
  std::function<void(Result<uint64_t>)> next = [&](Result<uint64_t> result) {
    ASSERT_TRUE(result.ok());
    if (++chain == 20) return;
    disk_->submit({.op = IoOp::kWrite,
                   .file = file,
                   .offset = chain * kBlockBytes,
                   .memory = data.bytes(),
                   .on_done = next});
  };
  disk_->submit({.op = IoOp::kWrite, .file = file, .memory = data.bytes(), .on_done = next});
  drain();
  EXPECT_EQ(chain, 20);
  disk_->close(file);
}

TEST_P(DiskTest, EventDescriptorAnnouncesCompletions) {
  if (disk_->event_fd() < 0) GTEST_SKIP() << "this engine has none";
  const FileId file = create("a");
  AlignedBuffer data = random_bytes(kBlockBytes, 5);
  for (int round = 0; round < 3; ++round) {
    bool done = false;
    disk_->submit({.op = IoOp::kWrite,
                   .file = file,
                   .memory = data.bytes(),
                   .on_done = [&done](Result<uint64_t>) { done = true; }});
    while (!done) {
      pollfd waiting{disk_->event_fd(), POLLIN, 0};
      ASSERT_EQ(poll(&waiting, 1, 30'000), 1) << "round " << round;
      disk_->reap();
    }
  }
  disk_->close(file);
}

TEST_P(DiskTest, RegisteredBufferWritesAndReads) {
  // A shared memfd, like an arena. The buffer is registered once and used at various offsets.
  const size_t bytes = 4 << 20;
  const int fd = memfd_create("arena", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, bytes), 0);
  auto* mapped = static_cast<std::byte*>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0));
  const AlignedBuffer data = random_bytes(bytes, 6);
  std::copy(data.bytes().begin(), data.bytes().end(), mapped);
  auto buffer = disk_->register_buffer({mapped, bytes});
  if (!buffer.ok()) {
    EXPECT_EQ(buffer.error().code, ErrorCode::kUnavailable);
  } else {
    const FileId file = create("a", bytes);
    const size_t half = bytes / 2;
    disk_->submit({.op = IoOp::kWrite,
                   .file = file,
                   .offset = kBlockBytes,
                   .memory = {mapped + kBlockBytes, half},
                   .buffer = *buffer});
    drain();
    AlignedBuffer back(half);
    ASSERT_TRUE(read_blocking(*disk_, file, kBlockBytes, back.bytes()).ok());
    EXPECT_TRUE(std::ranges::equal(back.bytes(), data.bytes().subspan(kBlockBytes, half)));
    disk_->submit({.op = IoOp::kRead,
                   .file = file,
                   .offset = kBlockBytes,
                   .memory = {mapped + half, kBlockBytes},
                   .buffer = *buffer});
    drain();
    EXPECT_TRUE(std::equal(mapped + half, mapped + half + kBlockBytes, mapped + kBlockBytes));
    disk_->unregister_buffer(*buffer);
    disk_->close(file);
  }
  munmap(mapped, bytes);
  ::close(fd);
}

TEST_P(DiskTest, RegistersBuffersAgainAfterUnregistering) {
  std::vector<AlignedBuffer> memory;
  for (int i = 0; i < 8; ++i) memory.emplace_back(1 << 16);
  for (int round = 0; round < 4; ++round) {
    std::vector<BufferId> buffers;
    for (AlignedBuffer& each : memory) {
      auto buffer = disk_->register_buffer(each.bytes());
      if (!buffer.ok()) GTEST_SKIP() << buffer.error().message;
      buffers.push_back(*buffer);
    }
    EXPECT_EQ(std::set<BufferId>(buffers.begin(), buffers.end()).size(), buffers.size());
    for (const BufferId buffer : buffers) disk_->unregister_buffer(buffer);
  }
}

TEST_P(DiskTest, CreateRefusesExistingAndOpenMissingFile) {
  const FileId file = create("a");
  auto again = disk_->open("a", {.create = true});
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kAlreadyExists);
  auto missing = disk_->open("b", {});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("b"));
  auto nowhere = disk_->open("none/b", {.create = true});
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().code, ErrorCode::kNotFound);
  disk_->close(file);
}

TEST_P(DiskTest, DirectoriesListAndRemoveFiles) {
  ASSERT_TRUE(disk_->make_directory("segments").ok());
  ASSERT_TRUE(disk_->make_directory("segments").ok()) << "making it twice is no error";
  disk_->close(create("segments/2"));
  disk_->close(create("segments/1"));
  ASSERT_TRUE(disk_->sync_directory("segments").ok());
  ASSERT_TRUE(disk_->sync_directory("").ok());
  EXPECT_THAT(disk_->list("segments").value(), ElementsAre("1", "2"));
  EXPECT_THAT(disk_->list("").value(), ElementsAre("segments"));
  ASSERT_TRUE(disk_->remove("segments/1").ok());
  EXPECT_THAT(disk_->list("segments").value(), ElementsAre("2"));
  EXPECT_EQ(disk_->remove("segments/1").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(disk_->list("nothing").error().code, ErrorCode::kNotFound);
}

// Its bytes would be lost when it is closed: no sync may say that they are durable.
TEST_P(DiskTest, SyncFailsOnceTheFileIsRemoved) {
  const FileId removed = create("a");
  const FileId renamed = create("b");
  const FileId replaced = create("c");
  EXPECT_TRUE(sync_blocking(*disk_, removed).ok());
  ASSERT_TRUE(disk_->remove("a").ok());
  ASSERT_TRUE(disk_->rename("b", "d").ok());
  ASSERT_TRUE(disk_->remove("c").ok());
  const FileId other = create("c");
  for (const auto& [file, path] : {std::pair(removed, "a"), std::pair(replaced, "c")}) {
    const Status synced = sync_blocking(*disk_, file);
    ASSERT_FALSE(synced.ok()) << path;
    EXPECT_EQ(synced.error().code, ErrorCode::kIo);
    EXPECT_TRUE(is_lost_name(synced.error().message));
    EXPECT_THAT(synced.error().message, testing::StartsWith(std::string(path) + ": "));
  }
  EXPECT_EQ(disk_->write_errors(), 2u);
  for (const FileId file : {renamed, other}) EXPECT_TRUE(sync_blocking(*disk_, file).ok());
  for (const FileId file : {removed, renamed, replaced, other}) disk_->close(file);
}

TEST_P(DiskTest, TruncatesAndPunchesFiles) {
  const FileId file = create("a", 16 * kBlockBytes);
  EXPECT_EQ(disk_->size(file).value(), 16 * kBlockBytes);
  const AlignedBuffer data = random_bytes(16 * kBlockBytes, 8);
  ASSERT_TRUE(write_blocking(*disk_, file, 0, data.bytes()).ok());
  std::optional<Result<uint64_t>> punched;
  disk_->submit({.op = IoOp::kPunch,
                 .file = file,
                 .offset = 4 * kBlockBytes,
                 .bytes = 2 * kBlockBytes,
                 .on_done = [&](Result<uint64_t> result) { punched = std::move(result); }});
  EXPECT_FALSE(punched.has_value()) << "a completion never runs inside submit()";
  while (!punched) {
    disk_->wait();
    disk_->reap();
  }
  ASSERT_TRUE(punched->ok()) << punched->error().message;
  EXPECT_EQ(disk_->size(file).value(), 16 * kBlockBytes);
  AlignedBuffer back(16 * kBlockBytes);
  ASSERT_TRUE(read_blocking(*disk_, file, 0, back.bytes()).ok());
  EXPECT_TRUE(ckpt::base::all_zero(back.bytes().subspan(4 * kBlockBytes, 2 * kBlockBytes)));
  EXPECT_TRUE(std::ranges::equal(back.bytes().subspan(6 * kBlockBytes),
                                 data.bytes().subspan(6 * kBlockBytes)));
  ASSERT_TRUE(disk_->truncate(file, 2 * kBlockBytes).ok());
  EXPECT_EQ(disk_->size(file).value(), 2 * kBlockBytes);
  EXPECT_EQ(read_blocking(*disk_, file, 0, back.bytes()).value(), 2 * kBlockBytes);
  disk_->close(file);
}

TEST_P(DiskTest, CreatesFilesOnAnotherThread) {
  ASSERT_TRUE(disk_->make_directory("a").ok());
  auto made = std::async([this] { return disk_->create_file("a/b", 16 * kBlockBytes); }).get();
  ASSERT_TRUE(made.ok()) << made.error().message;
  const FileId file = disk_->adopt(std::move(made).value());
  const AlignedBuffer data = random_bytes(kBlockBytes, 3);
  ASSERT_TRUE(write_blocking(*disk_, file, kBlockBytes, data.bytes()).ok());
  EXPECT_EQ(disk_->size(file).value(), 16 * kBlockBytes);
  EXPECT_EQ(disk_->create_file("a/b", 0).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(disk_->create_file("no/b", 0).error().code, ErrorCode::kNotFound);
  AlignedBuffer back(2 * kBlockBytes);
  EXPECT_EQ(disk_->read_now(file, 15 * kBlockBytes, back.bytes()).value(), kBlockBytes);
  EXPECT_EQ(disk_->read_now(file, kBlockBytes, back.bytes()).value(), 2 * kBlockBytes);
  EXPECT_TRUE(std::equal(data.bytes().begin(), data.bytes().end(), back.bytes().begin()));
  disk_->close(file);
}

TEST_P(DiskTest, AllocatingTakesSpaceAndChangesNothing) {
  const FileId file = create("log");
  const AlignedBuffer data = random_bytes(kBlockBytes, 4);
  ASSERT_TRUE(write_blocking(*disk_, file, 0, data.bytes()).ok());
  std::optional<Result<uint64_t>> outcome;
  disk_->submit({.op = IoOp::kAllocate,
                 .file = file,
                 .offset = 0,
                 .bytes = 64 * kBlockBytes,
                 .on_done = [&](Result<uint64_t> result) { outcome = std::move(result); }});
  EXPECT_FALSE(outcome.has_value());
  drain();
  ASSERT_TRUE(outcome.has_value());
  if (!outcome->ok() && outcome->error().code == ErrorCode::kUnavailable) {
    GTEST_SKIP() << outcome->error().message;
  }
  EXPECT_TRUE(outcome->ok()) << outcome->error().message;
  EXPECT_EQ(disk_->size(file).value(), kBlockBytes);
  AlignedBuffer back(kBlockBytes);
  EXPECT_EQ(read_blocking(*disk_, file, 0, back.bytes()).value(), kBlockBytes);
  EXPECT_TRUE(std::equal(data.bytes().begin(), data.bytes().end(), back.bytes().begin()));
  disk_->close(file);
}

TEST_P(DiskTest, SpaceIsPlausible) {
  const Disk::Space space = disk_->space().value();
  EXPECT_GT(space.free_bytes, 0u);
  EXPECT_LE(space.free_bytes, space.total_bytes);
}

TEST_P(DiskTest, OversizedPreallocationIsRefusedWithItsSize) {
  auto file = disk_->open("a", {.create = true, .preallocate_bytes = 1ull << 62});
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr("a: preallocating 4611686018427387904 bytes"));
  EXPECT_THAT(disk_->list("").value(), ElementsAre()) << "nothing is left behind";
}

INSTANTIATE_TEST_SUITE_P(Engines, DiskTest, testing::Values("uring", "pwritev", "memory"),
                         [](const auto& test) { return test.param; });

TEST(OpenDisk, NamesUnknownEngineAndMissingRoot) {
  auto engine = open_disk({.root = testing::TempDir(), .engine = "punchcards"});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(engine.error().message, HasSubstr("punchcards"));
  auto root = open_disk({.root = "/nonexistent/store", .engine = "pwritev"});
  ASSERT_FALSE(root.ok());
  EXPECT_EQ(root.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(root.error().message, HasSubstr("/nonexistent/store"));
}

// Makes io_uring_setup fail in this process, as container runtimes do.
bool forbid_io_uring(int error) {
  const sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{.len = 4, .filter = const_cast<sock_filter*>(rules)};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

class NoRing : public testing::TestWithParam<int> {};

TEST_P(NoRing, FallsBackToPwritev) {
  ckpt::test::TempFolder folder;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!forbid_io_uring(GetParam())) _exit(2);
    auto disk = open_disk({.root = folder.root(), .engine = "uring"});
    if (!disk.ok() || disk.value()->engine_name() != "pwritev") _exit(3);
    const FileId file = disk.value()->open("a", {.create = true}).value();
    const AlignedBuffer data = random_bytes(kBlockBytes, 9);
    _exit(write_blocking(**disk, file, 0, data.bytes()).ok() ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "seccomp is not available here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

class OddFiles : public DiskTest {};

// A FIFO would block its reader for ever, in open() or in read().
TEST_P(OddFiles, RefusesNonRegularFilesWithoutBlocking) {
  const std::string root = folder_.root();
  ASSERT_EQ(::mkfifo((root + "/fifo").c_str(), 0600), 0);
  ASSERT_EQ(::symlink("fifo", (root + "/link").c_str()), 0);
  ASSERT_EQ(::symlink("/dev/zero", (root + "/device").c_str()), 0);
  for (const std::string name : {"fifo", "link", "device"}) {
    for (const bool direct : {true, false}) {
      const auto file = disk_->open(name, {.direct = direct});
      ASSERT_FALSE(file.ok()) << name;
      EXPECT_EQ(file.error().code, ErrorCode::kFailedPrecondition) << "no bytes were lost";
      EXPECT_EQ(file.error().message, name + ": not a regular file");
    }
    const auto shared = disk_->share(name);
    ASSERT_FALSE(shared.ok()) << name;
    EXPECT_EQ(shared.error().message, name + ": not a regular file");
  }
}

// Only the check opens with O_NONBLOCK: on a file with O_NONBLOCK io_uring may return EAGAIN.
TEST_P(OddFiles, SharedFileHasNoNonblockFlag) {
  disk_->close(create("a", kBlockBytes));
  const auto shared = disk_->share("a");
  if (!shared.ok()) GTEST_SKIP() << shared.error().message;
  EXPECT_EQ(::fcntl(shared->get(), F_GETFL) & (O_NONBLOCK | O_DIRECT), O_DIRECT);
}

INSTANTIATE_TEST_SUITE_P(Engines, OddFiles, testing::Values("uring", "pwritev"),
                         [](const auto& test) { return test.param; });

INSTANTIATE_TEST_SUITE_P(Errors, NoRing, testing::Values(EPERM, ENOSYS),
                         [](const auto& test) { return test.param == EPERM ? "EPERM" : "ENOSYS"; });

}  // namespace
}  // namespace ckptd
