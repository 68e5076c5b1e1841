// One run of moetrain with its own ckptd, and its figures.
#pragma once

#include <string>
#include <vector>

#include "bench/common/step_events.h"
#include "trainer/elastic/process.h"

namespace bench {

// The same for every run of the bench. The model is small, so that a run takes seconds, and has
// experts enough for K to mean something.
struct StepWorkload {
  std::string directory;  // of the bench's own, on the disk to measure
  std::string data;       // the file to learn from
  std::string engine;     // ckptd's --io
  uint32_t ranks = 4;
  uint32_t layers = 2;
  uint32_t experts = 16;
  uint32_t intermediate = 256;
  uint32_t batch = 32;  // sequences
  uint32_t seq_len = 64;
  StepWindow window{4, 24};

  uint64_t tokens_per_step() const { return uint64_t{batch} * seq_len; }
};

// `moetrain run` from the folder of this program, with these flags more; its events go to a file.
std::vector<std::string> run_command(const StepWorkload& workload, const std::string& events,
                                     const std::vector<std::string>& flags);
// Starts such a command. Its store and socket are below `folder`, its output goes to
// run_log(folder).
ckpt::Result<moetrain::Process> start_run(const std::vector<std::string>& command,
                                          const std::string& folder);
std::string run_log(const std::string& folder);

// Runs `moetrain run` from the folder of this program with these flags more. Its store is removed
// and the file system has settled when this returns. Bounded: kDeadlineExceeded after five minutes.
ckpt::Result<StepFigures> run_steps(const StepWorkload& workload,
                                    const std::vector<std::string>& flags);

// The same, with checkpoints in alternating turns of `turn_steps` steps.
ckpt::Result<TurnFigures> run_turns(const StepWorkload& workload, uint64_t turn_steps,
                                    std::vector<std::string> flags);

}  // namespace bench
