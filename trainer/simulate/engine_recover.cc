// Costs and effects of checkpoints and of changes of the nodes.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "trainer/simulate/engine_impl.h"

namespace moetrain::simulate {

// --- checkpoints ---------------------------------------------------------------------------------

double Engine::snapshot_bytes(size_t experts) const {
  return model_.dense_bytes() + static_cast<double>(experts) * model_.expert_bytes();
}

bool Engine::take_checkpoint() {
  next_checkpoint_ = progress_.step + options_.checkpoint_steps;
  // Snapshots are sequential; remote storage takes one upload at a time.
  if (system_.in_memory &&
      (!checkpoints_.memory_free(now_) || (!system_.to_peer && !checkpoints_.remote_free(now_)))) {
    ++outcome_.skipped;
    return true;
  }
  size_t experts = load_.grid().size();
  Checkpoint taken{.progress = progress_};
  if (ages_) taken.experts = ages_->snapshot(experts);
  const double bytes = snapshot_bytes(experts);
  const double copy_s = bytes / static_cast<double>(ranks_) / model_.copy_bytes_per_s;
  const double hidden_s = model_.copy_hidden * static_cast<double>(step_time_) / kSecond;
  const double stall_s = system_.in_memory ? std::max(copy_s - hidden_s, 0.0)
                                           : copy_s + bytes / model_.remote_write_bytes_per_s;
  if (!spend(Kind::kCheckpoint, micros(stall_s), member_)) {
    if (taken.experts) ages_->failed(taken.experts->snapshot);
    if (now_ < trace_.end) lose_node(0);
    return false;
  }
  ++outcome_.checkpoints;
  taken.taken = now_;
  auto nodes = std::make_shared<std::vector<NodeLife>>();
  for (const Group& group : groups_) {
    nodes->insert(nodes->end(), group.nodes.begin(), group.nodes.end());
  }
  const auto node_count = static_cast<double>(nodes->size());
  taken.nodes = std::move(nodes);
  if (!system_.in_memory) {
    taken.remote = now_;
    checkpoints_.add(std::move(taken));
    return true;
  }
  const double peer_s = system_.to_peer ? bytes / node_count / model_.peer_bytes_per_s : 0;
  taken.in_memory = now_ + micros(peer_s);
  unsent_ = std::min(unsent_ + experts, load_.grid().size());
  if (checkpoints_.remote_free(now_)) {
    sending_ = unsent_;
    unsent_ = 0;
    const double remote_s = snapshot_bytes(sending_) / model_.remote_write_bytes_per_s;
    taken.remote = taken.in_memory + micros(remote_s);
  }
  checkpoints_.add(std::move(taken));
  return true;
}

// --- what a change costs -------------------------------------------------------------------------

Micros Engine::detection() const {
  if (noticed_) return 0;
  return micros(system_.detects ? model_.ours_detect_s : model_.timeout_s);
}

Micros Engine::regrouping() const {
  return micros(model_.plan_s + (system_.detects ? model_.ours_regroup_s : model_.regroup_s));
}

Micros Engine::moving(double bytes) const { return micros(bytes / model_.transfer_bytes_per_s); }

// Time to load a whole checkpoint from the shared store, whose bandwidth all readers share.
Micros Engine::reading(const Groups& groups) const {
  double bytes = model_.checkpoint_bytes();
  if (model_.every_rank_reads > 0) {
    bytes = 0;
    for (const Group& group : groups) {
      for (const std::vector<uint32_t>& experts : group.plan->held) {
        bytes += model_.ranks_per_node * model_.dense_bytes() +
                 static_cast<double>(experts.size()) * model_.expert_bytes();
      }
    }
  }
  return micros(bytes / model_.remote_read_bytes_per_s);
}

// Restart of all `groups` from the newest checkpoint in the memory of survivors or in the store.
Engine::Way Engine::restart_way(const Groups& groups) const {
  Way way{.from = &checkpoints_.newest_remote(now_), .rewind = true};
  if (system_.to_peer) {
    const Checkpoint* memory = checkpoints_.newest_in_memory(cluster_, now_);
    if (memory != nullptr && memory->progress.step >= way.from->progress.step) {
      way.from = memory;
      way.from_memory = true;
    }
  }
  const auto nodes = static_cast<double>(std::max<size_t>(cluster_.list.size(), 1));
  Micros load = 0;
  if (way.from->progress.step == 0) {
    load = 0;  // initialised from the seed
  } else if (way.from_memory) {
    load = micros(model_.checkpoint_bytes() / nodes / model_.peer_bytes_per_s);
  } else {
    load = reading(groups);
  }
  way.duration = detection() + micros(model_.restart_s) + load;
  return way;
}

Engine::Way Engine::find_way(const Regrouped& regrouped) const {
  if (!system_.from_replicas || !any_alive(groups_, cluster_)) {
    return restart_way(regrouped.groups);
  }
  Way way{.lost = lost_experts(groups_, cluster_)};
  way.duration = detection() + regrouping() + moving(regrouped.moved_bytes);
  if (way.lost.empty()) return way;
  if (!system_.rolls_back) return restart_way(regrouped.groups);
  const Way newest = restart_way(regrouped.groups);
  way.from = newest.from;
  way.from_memory = newest.from_memory;
  const double bytes = static_cast<double>(way.lost.size()) * model_.expert_bytes();
  way.duration +=
      micros(bytes / (way.from_memory ? model_.peer_bytes_per_s : model_.remote_read_bytes_per_s));
  return way;
}

// --- what it does --------------------------------------------------------------------------------

// A partial system that rewinds: experts whose holders all live have their versions in memory.
std::vector<int64_t> Engine::held_after(const Checkpoint& view, bool from_memory) const {
  std::vector<int64_t> held = view.experts->memory;
  if (from_memory) return held;
  const bool same_groups = view.taken >= grouped_at_ && view.nodes != nullptr;
  for (size_t expert = 0; expert < held.size(); ++expert) {
    const bool alive =
        same_groups && std::ranges::all_of(groups_, [&](const Group& group) {
          return std::ranges::all_of(group.plan->holders[expert], [&](uint32_t position) {
            return cluster_.has(group.nodes[position]);
          });
        });
    if (!alive) held[expert] = view.experts->saved[expert].tokens;
  }
  return held;
}

void Engine::take_way(const Way& way) {
  if (way.rewind) {
    ++outcome_.rewinds;
    Micros& train = time_[static_cast<size_t>(Kind::kTrain)];
    time_[static_cast<size_t>(Kind::kRedo)] += train - way.from->progress.train;
    if (ages_) ages_->rewind(*way.from->experts, held_after(*way.from, way.from_memory));
    progress_ = way.from->progress;
    train = progress_.train;
    next_checkpoint_ = progress_.step + options_.checkpoint_steps;
    next_replan_ = progress_.step + static_cast<uint64_t>(model_.replan_steps);
    checkpoints_.rewind(progress_);
  } else if (!way.lost.empty()) {
    outcome_.rolled_back += way.lost.size();
    for (const uint32_t expert : way.lost) ages_->roll_back(expert, *way.from->experts);
    checkpoints_.rewind(way.from->progress);
  }
  note_curve();
}

// --- groups --------------------------------------------------------------------------------------

uint32_t Engine::nodes_needed() const {
  const double slots = model_.slots_per_rank * model_.ranks_per_node;
  return system_.placement == PolicyName::kStatic
             ? ep_ranks(model_) / static_cast<uint32_t>(model_.ranks_per_node)
             : static_cast<uint32_t>(std::ceil(model_.experts / slots));
}

uint32_t Engine::usable_nodes() const {
  const auto there = static_cast<uint32_t>(cluster_.list.size());
  const uint32_t needed = nodes_needed();
  if (there < needed) return 0;
  return system_.placement == PolicyName::kStatic ? there - there % needed : there;
}

// The known loads: those before the present ones.
uint32_t Engine::plan_epoch() const {
  const uint32_t epoch = load_.epoch_of(progress_.step);
  return epoch > 0 ? epoch - 1 : 0;
}

Result<Regrouped> Engine::regroup_now(bool plan_all) {
  const Groups& before = groups_;
  Plans plans;
  if (system_.placement == PolicyName::kStatic) {
    CKPT_ASSIGN(const std::shared_ptr<const Plan> plan, planner_.expert_parallel());
    plans.assign(usable_nodes() / plan->nodes, plan);
    Groups ordered;  // complete groups stay unchanged
    for (const bool wanted : {true, false}) {
      std::ranges::copy_if(before, std::back_inserter(ordered),
                           [&](const Group& group) { return whole(group, cluster_) == wanted; });
    }
    return regroup(model_, ordered, plans, cluster_);
  }
  const auto group_nodes =
      static_cast<uint32_t>(std::ceil(model_.group_ranks / model_.ranks_per_node));
  const std::vector<uint32_t> sizes = elastic_sizes(before, cluster_, group_nodes, nodes_needed());
  plans.reserve(sizes.size());
  for (size_t g = 0; g < sizes.size(); ++g) {
    if (!plan_all && g < before.size() && before[g].nodes.size() == sizes[g] &&
        whole(before[g], cluster_)) {
      plans.push_back(before[g].plan);
      continue;
    }
    CKPT_ASSIGN(std::shared_ptr<const Plan> plan,
                planner_.elastic(system_.placement, sizes[g], plan_epoch()));
    plans.push_back(std::move(plan));
  }
  return regroup(model_, before, plans, cluster_);
}

void Engine::adopt(Regrouped regrouped) {
  groups_ = std::move(regrouped.groups);
  member_ = std::move(regrouped.member);
  grouped_at_ = now_;
  started_ = true;
  training_ = true;
  noticed_ = true;
  if (ages_) ages_->placed(groups_);
  update_pace();
}

// The first time costs nothing: every system starts at the same moment.
Status Engine::form() {
  CKPT_ASSIGN(Regrouped regrouped, regroup_now(false));
  if (started_) {
    const Way way = find_way(regrouped);
    if (!spend(Kind::kRecover, way.duration, regrouped.member)) {
      noticed_ = false;
      return {};
    }
    take_way(way);
  }
  adopt(std::move(regrouped));
  return {};
}

// Joining nodes have gathered. They are admitted if more nodes can train with them.
Status Engine::join() {
  join_due_ = kNever;
  size_t used = 0;
  for (const Group& group : groups_) used += group.nodes.size();
  if (usable_nodes() <= used) return {};
  if (!system_.from_replicas && checkpoints_.newest().progress.step != progress_.step &&
      !take_checkpoint()) {
    return {};
  }
  CKPT_ASSIGN(Regrouped regrouped, regroup_now(false));
  Micros duration = 0;
  if (system_.from_replicas) {
    duration = regrouping() + moving(regrouped.moved_bytes);
  } else {
    // Save, stop, and restart with the joining nodes. No step is lost.
    const double shared = 2 * model_.checkpoint_bytes() / static_cast<double>(used);
    duration =
        micros(model_.restart_s) +
        (system_.in_memory ? micros(shared / model_.peer_bytes_per_s) : reading(regrouped.groups));
  }
  std::vector<bool> busy = member_;
  for (size_t node = 0; node < busy.size(); ++node)
    busy[node] = busy[node] || regrouped.member[node];
  if (!spend(Kind::kRecover, duration, busy)) {
    if (now_ < trace_.end) lose_node(0);
    return {};
  }
  adopt(std::move(regrouped));
  return {};
}

// Loads have changed: experts move if the gain until the next time pays for it.
Status Engine::replan() {
  const auto steps = static_cast<uint64_t>(model_.replan_steps);
  next_replan_ = progress_.step + steps;
  const uint32_t epoch = plan_epoch();
  if (std::ranges::all_of(groups_, [&](const Group& one) { return one.plan->epoch == epoch; })) {
    return {};
  }
  CKPT_ASSIGN(Regrouped regrouped, regroup_now(true));
  const Micros gained = pace(groups_, epoch) - pace(regrouped.groups, epoch);
  const Micros cost = moving(regrouped.moved_bytes);
  if (gained <= 0 ||
      static_cast<double>(gained) * static_cast<double>(steps) <= static_cast<double>(cost)) {
    return {};
  }
  if (!spend(Kind::kRecover, cost, member_)) {
    if (now_ < trace_.end) lose_node(0);
    return {};
  }
  adopt(std::move(regrouped));
  return {};
}

}  // namespace moetrain::simulate
