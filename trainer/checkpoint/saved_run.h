// SavedRun: a run's configuration and view, read from ckptd before a restore.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "formats/selector.h"
#include "trainer/checkpoint/trainer_state.h"
#include "trainer/checkpoint/units.h"
#include "trainer/model/model.h"
#include "trainer/train_config.h"

namespace moetrain {

struct SavedRun {
  TrainConfig config;
  uint64_t step = 0;  // of the requested view
  uint32_t lineage = 0;
  bool stale = false;  // some of the view's units are older than its step
};

// Waits until a ckptd answers at `socket`; calls `say` with a line if it does not answer at once.
// The error is the client's.
Status await_ckptd(const std::string& socket, const std::string& run,
                   const std::function<void(const std::string& line)>& say);

// Why the ckptd at `socket` takes no checkpoints now, with the remedies; empty: it takes them, or
// does not answer, which the ranks tell themselves.
std::string why_not_saving(const std::string& socket);

// The configuration of the commit's run, and the view at the commit. kNotFound if there is none:
// the message names the commits of the same step that other lineages have. kInvalidArgument if the
// run is not one of moetrain; otherwise as check_layout().
Result<SavedRun> find_saved_run(const std::string& socket, const ckpt::Selector& commit);

// Loads the run's trainer unit as of the view: one restore, which needs no hold.
Result<TrainerState> load_trainer_state(const std::string& socket, const std::string& run,
                                        const SavedRun& saved);

// A unit of a run, as ckptd has it.
struct SavedUnit {
  std::string name;
  uint64_t bytes = 0;
};
// Checks that the run's state is laid out as `ours`. kFailedPrecondition names the first unit that
// is not: the run was saved by another version of moetrain, and can only be exported.
Status check_layout(const std::string& run, const std::vector<SavedUnit>& saved,
                    const std::vector<StateUnit>& ours);

struct LoadedModel {
  std::unique_ptr<Device> device;
  std::unique_ptr<Model> model;
  std::vector<std::string> notes;  // units that come from an older step, and why
};
// Loads the whole model as of the view, on one rank and the host. `trace`: the trace that the run
// follows, or null. Holds the view meanwhile, so that no prune or removal deletes a part of it.
// kNotFound if it was removed since it was found. Errors: also those of Model::create().
Result<LoadedModel> load_saved_model(const std::string& socket, const std::string& run,
                                     const SavedRun& saved,
                                     std::shared_ptr<const RouterTrace> trace);

}  // namespace moetrain
