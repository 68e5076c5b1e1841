// Trainer of one rank that looks at its snapshot between steps and never waits for the disk. Each
// run resumes where the last one ended. The same in C: tests/client/c_trainer.c.
#include <ckpt/client.hpp>
#include <cstdio>
#include <vector>

using namespace ckpt::client;

int failed(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

int main() {
  std::vector<float> weights(1 << 20, 1.0f);
  const uint64_t bytes = weights.size() * sizeof(float);
  auto session = Session::open({});  // $CKPTD_SOCKET, $CKPTD_RUN
  if (!session) return failed(session.error());
  const UnitInfo unit{"layers.0", -1, -1, "", bytes, {{"w", "F32", {1 << 20}, 0}}};
  if (auto done = session->register_units({unit}); !done) return failed(done.error());
  auto epoch = session->join({});  // one rank; resumes from the newest view, if there is one
  if (!epoch) return failed(epoch.error());
  SnapshotOptions plan;
  plan.units = {0};
  plan.fragments = {{0, 0, 0, bytes}};  // rank, unit, offset, length: of all ranks
  if (epoch->resume) {
    RestoreOptions from;
    from.lineage = epoch->resume->lineage;
    from.step = plan.step = epoch->resume->step;
    auto restored = session->restore(from, {{0, 0, bytes, weights.data()}});
    if (!restored) return failed(restored.error());
  }
  for (float& weight : weights) weight += 1.0f;  // a step of training
  plan.step += 1;
  auto snapshot = session->begin(plan);
  if (!snapshot) return failed(snapshot.error());
  if (auto done = snapshot->write(0, 0, weights.data(), bytes); !done) return failed(done.error());
  if (auto done = snapshot->end(); !done) return failed(done.error());
  for (int step = 0; step < 600 && snapshot->info().level < CKPT_LEVEL_DURABLE; ++step) {
    // train on; here: wait for news, at most 100 ms
    if (auto done = session->poll(100); !done) return failed(done.error());
  }
  const SnapshotInfo info = snapshot->info();
  if (info.level != CKPT_LEVEL_DURABLE) return failed({info.failure, info.reason});
  std::printf("step %d is durable, weight %.1f\n", static_cast<int>(plan.step), weights[0]);
  return session->leave() ? 0 : 1;
}
