#include "client/src/cuda/direct_reader.h"

#include <utility>

#include "client/src/cuda/capture_scope.h"
#include "kernels/cuda/queue.h"

namespace ckpt::lib {
namespace {

// Concurrent reads, which keep an NVMe device busy; each needs a thread.
constexpr size_t kThreads = 4;

}  // namespace

DirectReader::~DirectReader() {
  (void)cancel_and_check_idle();
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<DirectReader::Job> DirectReader::start(std::shared_ptr<CuFile::File> file,
                                                       std::byte* base,
                                                       const std::vector<DirectRead>& reads) {
  auto job = std::make_shared<Job>();
  job->file = std::move(file);
  job->base = base;
  job->reads = reads;
  job->got.resize(reads.size());
  job->left = reads.size();
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < reads.size(); ++i) queue_.emplace_back(job, i);
  }
  wake_.notify_all();
  try {
    while (threads_.size() < kThreads) threads_.emplace_back([this] { serve(); });
  } catch (const std::system_error& error) {
    if (threads_.empty())
      fail_job(*job, CuFile::no_thread(error));  // fewer threads are only slower
  }
  return job;
}

// Ends the job with an error. Precondition: no thread reads.
void DirectReader::fail_job(Job& job, Error why) {
  const std::lock_guard lock(mutex_);
  queue_.clear();
  job.left = 0;
  job.cufile_error = std::move(why);
}

bool DirectReader::finished(const Job& job) {
  const std::lock_guard lock(mutex_);
  return job.left == 0;
}

uint64_t DirectReader::reads_done() {
  const std::lock_guard lock(mutex_);
  return done_;
}

bool DirectReader::cancel_and_check_idle() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  queue_.clear();
  wake_.notify_all();
  return busy_ == 0;
}

void DirectReader::serve() {
  kernels::choose_cuda_device(device_);
  const CaptureScope beside_captures;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const auto [job, index] = std::move(queue_.front());
    queue_.pop_front();
    // Once the library has failed, make no more calls.
    if (job->cufile_error) {
      job->left -= 1;
      continue;
    }
    ++busy_;
    lock.unlock();
    const DirectRead& read = job->reads[index];
    const auto bytes = CuFile::read(*job->file, job->base, read.bytes, read.file_offset, read.at);
    lock.lock();
    --busy_;
    ++done_;
    take(*job, index, bytes);
  }
}

void DirectReader::take(Job& job, size_t index, const Result<uint64_t>& bytes) {
  job.left -= 1;
  if (bytes.ok()) {
    job.got[index] = *bytes;
    return;
  }
  auto& error = bytes.error().code == ErrorCode::kIo ? job.read_error : job.cufile_error;
  if (!error) error = bytes.error();
}

}  // namespace ckpt::lib
