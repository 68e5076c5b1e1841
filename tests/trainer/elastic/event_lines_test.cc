// The lines of `--events` and of the pipe, byte for byte: other programs read them.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "trainer/elastic/events.h"

namespace moetrain {
namespace {

struct GoldenLine {
  RankEvent event;
  std::string line;
};

Relayout some_relayout() {
  return {.bytes_moved = 88,
          .plan_ms = 2.5,
          .migrate_ms = 10.25,
          .memory_bytes = 96,
          .memory_bound = 99,
          .plt = 0.0375,
          .plt_rollback = 0.0125,
          .lost = {0, 5}};
}

// No field of these lines has its default value.
std::vector<GoldenLine> lines_of_joining() {
  return {
      {{.header = {.rank = 3, .time_ns = 5'000'000'001}, .body = JoiningEvent{.pid = 4'711}},
       R"({"event":"joining","pid":4711,"rank":3,"time":"T","time_ns":5000000001})"},
      {{.header = {.rank = 3, .epoch = 4}, .body = ConnectingEvent{}},
       R"({"epoch":4,"event":"connecting","rank":3})"},
      {{.header = {.rank = 3, .epoch = 4}, .body = RestoringEvent{}},
       R"({"epoch":4,"event":"restoring","rank":3})"},
      {{.header = {.rank = 3, .epoch = 4, .step = 30},
        .body = TrainingEvent{.resumed = true,
                              .view_lineage = 1,
                              .survivors_continue = true,
                              .joins = true,
                              .lineage = 2,
                              .group = 7,
                              .effective_replicas = 2,
                              .collectives = "nccl",
                              .regroup_ms = 30.5,
                              .restored = {.bytes_memory = 1'048'576,
                                           .bytes_disk = 77,
                                           .stale_units = {5, 9},
                                           .lost_tokens = 1'234,
                                           .experts_from_seed = 3},
                              .relayout = some_relayout(),
                              .pace = {.checkpoint_every = 10,
                                       .experts_per_checkpoint = 8,
                                       .experts_per_snapshot = 12},
                              .failures = 6,
                              .training_ms = 1'500.5}},
       R"({"bytes_disk":77,"bytes_memory":1048576,"bytes_moved":88,"checkpoint_every":10,)"
       R"("collectives":"nccl","effective_replicas":2,"epoch":4,"event":"training",)"
       R"("experts_from_seed":3,"experts_per_checkpoint":8,"experts_per_snapshot":12,)"
       R"("failures":6,"goes_on":true,"group":7,"joins":true,"lineage":2,"lost":[0,5],)"
       R"("lost_tokens":1234,"migrate_ms":10.25,"plan_ms":2.5,"plt":0.0375,)"
       R"("plt_rollback":0.0125,"rank":3,)"
       R"("recut_memory_bound":99,"recut_memory_bytes":96,"regroup_ms":30.5,"resumed":true,)"
       R"("stale_units":[5,9],"step":30,"training_ms":1500.5,"view_lineage":1})"},
  };
}

std::vector<GoldenLine> lines_of_changes() {
  return {
      {{.header = {.rank = 3, .epoch = 4, .step = 30},
        .body = GroupLostEvent{.reason = "a peer is gone"}},
       R"({"epoch":4,"event":"group_lost","rank":3,"step":30,"text":"a peer is gone"})"},
      {{.header = {.rank = 3, .epoch = 4, .step = 30},
        .body = RegroupingEvent{.reason = "others join", .relayout = some_relayout()}},
       R"({"bytes_moved":88,"epoch":4,"event":"regrouping","lost":[0,5],"migrate_ms":10.25,)"
       R"("plan_ms":2.5,"plt":0.0375,"plt_rollback":0.0125,"rank":3,)"
       R"("recut_memory_bound":99,"recut_memory_bytes":96,"step":30,)"
       R"("text":"others join"})"},
      {{.header = {.rank = 3, .epoch = 4, .step = 30},
        .body = DrainedEvent{.relayout = some_relayout()}},
       R"({"bytes_moved":88,"epoch":4,"event":"drained","lost":[0,5],"migrate_ms":10.25,)"
       R"("plan_ms":2.5,"plt":0.0375,"plt_rollback":0.0125,"rank":3,)"
       R"("recut_memory_bound":99,"recut_memory_bytes":96,"step":30})"},
      {{.header = {.rank = 3, .epoch = 4, .step = 30},
        .body = ReplannedEvent{.moved = true,
                               .balance_before = 1.75,
                               .balance_after = 1.25,
                               .gain_ms = 40,
                               .cost_ms = 4.5,
                               .relayout = some_relayout(),
                               .layer = 1,
                               .slots_before = {{0, 1}, {}},
                               .slots_after = {{0}, {1}},
                               .routed = {9, 1}}},
       R"({"balance_after":1.25,"balance_before":1.75,"bytes_moved":88,"cost_ms":4.5,"epoch":4,)"
       R"("event":"replanned","gain_ms":40.0,"layer":1,"lost":[0,5],"migrate_ms":10.25,)"
       R"("moved":true,"plan_ms":2.5,"plt":0.0375,"plt_rollback":0.0125,"rank":3,)"
       R"("recut_memory_bound":99,"recut_memory_bytes":96,)"
       R"("routed":[9,1],"slots_after":[[0],[1]],"slots_before":[[0,1],[]],"step":30})"},
  };
}

std::vector<GoldenLine> lines_of_processes() {
  return {
      {{.header = {.rank = 3, .step = 30}, .body = DyingEvent{.phase = "settle"}},
       R"({"event":"dying","rank":3,"step":30,"text":"settle"})"},
      {{.header = {.rank = 3}, .body = FatalEvent{.reason = "no data", .code = 10}},
       R"({"code":10,"event":"fatal","rank":3,"text":"no data"})"},
      {{.header = {.rank = 3, .time_ns = 5'000'000'001}, .body = AliveEvent{}},
       R"({"event":"alive","rank":3,"time":"T","time_ns":5000000001})"},
      {{.header = {.rank = 3}, .body = LogEvent{.text = "line one\nline \"two\" \x1b"}},
       R"({"event":"log","rank":3,"text":"line one\nline \"two\" \u001b"})"},
  };
}

std::vector<GoldenLine> lines_of_steps() {
  return {
      {{.header = {.rank = 3, .time_ns = 5'000'000'001, .step = 30},
        .body = StepEvent{.loss_bits = 0x7fc00000,
                          .applied = false,
                          .ms = 12.5,
                          .waited_ms = 4.5,
                          .stall_ms = 0.25,
                          .room_ms = 0.125,
                          .slabs_ms = 0.0625,
                          .snapshots_open = 2,
                          .learning_rate = 1e-3,
                          .gradient_norm = 0.1,
                          .busiest_rows = 100,
                          .max_over_mean = 1.5,
                          .experts = {.token_bytes = 11,
                                      .restore_bytes = 12,
                                      .reshard_bytes = 13,
                                      .exposed_ms = 1.5,
                                      .hidden_ms = 2.5,
                                      .plan_waits = 1,
                                      .plan_wait_ms = 0.5,
                                      .memory_bytes = 14,
                                      .memory_bound = 15},
                          .plt = 0.0375,
                          .plt_rollback = 0.0125,
                          .routed = {1, 0, 7},
                          .resumed_at = 20,
                          .resumed_versions = {20, 15},
                          .rolled_back = {1},
                          .rolled_back_to = {-1}}},
       R"({"applied":false,"busiest_rows":100,"event":"step","expert_memory_bound":15,)"
       R"("expert_memory_bytes":14,"exposed_ms":1.5,"gradient_norm":0.1,"hidden_ms":2.5,)"
       R"("learning_rate":0.001,"loss_bits":"7fc00000","max_over_mean":1.5,"ms":12.5,)"
       R"("plan_wait_ms":0.5,"plan_waits":1,"plt":0.0375,"plt_rollback":0.0125,"rank":3,)"
       R"("reshard_bytes":13,"restore_bytes":12,"resumed_at":20,)"
       R"("resumed_versions":[20,15],"rolled_back":[1],"rolled_back_to":[-1],"room_ms":0.125,)"
       R"("routed":[1,0,7],"slabs_ms":0.0625,"snapshots_open":2,"stall_ms":0.25,"step":30,)"
       R"("time":"T","time_ns":5000000001,"token_bytes":11,"waited_ms":4.5})"},
      {{.header = {.rank = 3, .step = 2},
        .body = ScheduleEvent{.spans = {{1, 1, 0, 50, 70}}, .left_out = 4}},
       R"({"event":"schedule","left_out":4,"rank":3,"spans":[[1,1,0,50,70]],"step":2})"},
  };
}

std::vector<GoldenLine> lines_of_checkpoints() {
  return {
      {{.header = {.rank = 3, .step = 30},
        .body = TakingEvent{.bytes = 201,
                            .bytes_kept = 33,
                            .rank_bytes_max = 120,
                            .rank_bytes_mean = 100.5,
                            .experts = {0, 3},
                            .memory_experts = {3}}},
       R"({"bytes":201,"bytes_kept":33,"event":"taking","experts":[0,3],"memory_experts":[3],)"
       R"("rank":3,"rank_bytes_max":120,"rank_bytes_mean":100.5,"step":30})"},
      {{.header = {.rank = 3, .step = 30},
        .body = SnapshotEvent{.durable = true,
                              .reason = "no slab",
                              .detail = 3,
                              .no_answer = true,
                              .taken_in = 3,
                              .bytes = 99,
                              .stall_ms = 0.25,
                              .durable_ms = 3.5,
                              .timings = {.plan_ns = 1,
                                          .begin_ns = 2,
                                          .slab_wait_ns = 3,
                                          .copy_ns = 4,
                                          .seal_ns = 5,
                                          .write_ns = 6,
                                          .sync_ns = 7,
                                          .journal_ns = 8}}},
       R"({"begin_ns":2,"bytes":99,"copy_ns":4,"detail":3,"durable":true,"durable_ms":3.5,)"
       R"("event":"snapshot","journal_ns":8,"no_answer":true,"plan_ns":1,"rank":3,"seal_ns":5,)"
       R"("slab_wait_ns":3,"stall_ms":0.25,"step":30,"sync_ns":7,"taken_in":3,)"
       R"("text":"no slab","write_ns":6})"},
      {{.header = {.rank = 3, .epoch = 4, .step = 30}, .body = PostponedEvent{}},
       R"({"epoch":4,"event":"postponed","rank":3,"step":30})"},
      {{.header = {.rank = 3, .epoch = 4, .step = 30},
        .body = StallingEvent{.waited_ms = 2000, .snapshots_open = 3}},
       R"({"epoch":4,"event":"stalling","rank":3,"snapshots_open":3,"step":30,)"
       R"("waited_ms":2000.0})"},
      {{.header = {.rank = 3, .step = 30},
        .body = PacingEvent{.reason = "by flags",
                            .pace = {.checkpoint_every = 10,
                                     .experts_per_checkpoint = 8,
                                     .experts_per_snapshot = 12}}},
       R"({"checkpoint_every":10,"event":"pacing","experts_per_checkpoint":8,)"
       R"("experts_per_snapshot":12,"rank":3,"step":30,"text":"by flags"})"},
      {{.header = {.rank = 3, .epoch = 4, .step = 30}, .body = SavingEvent{}},
       R"({"epoch":4,"event":"saving","rank":3,"step":30})"},
      {{.header = {.rank = 3, .step = 30}, .body = SavedEvent{.reason = "too few ranks"}},
       R"({"event":"saved","rank":3,"step":30,"text":"too few ranks"})"},
      {{.header = {.time_ns = 5'000'000'001, .step = 30},
        .body = NoticeEvent{.text = "no checkpoint"}},
       R"({"event":"notice","rank":null,"step":30,"text":"no checkpoint","time":"T",)"
       R"("time_ns":5000000001})"},
  };
}

std::vector<GoldenLine> golden_lines() {
  std::vector<GoldenLine> all;
  for (const auto& lines : {lines_of_joining(), lines_of_changes(), lines_of_processes(),
                            lines_of_steps(), lines_of_checkpoints()}) {
    all.insert(all.end(), lines.begin(), lines.end());
  }
  return all;
}

// The wall clock of a moment differs from run to run.
std::string without_wall_time(const std::string& line) {
  static const std::regex wall_time(R"re("time":"[^"]*")re");
  return std::regex_replace(line, wall_time, R"("time":"T")");
}

EventBody default_of_kind(const EventBody& body) {
  return std::visit([]<typename Kind>(const Kind&) -> EventBody { return Kind{}; }, body);
}

TEST(EventLinesTest, EveryKindHasItsLine) {
  std::set<size_t> kinds;
  for (const GoldenLine& golden : golden_lines()) kinds.insert(golden.event.body.index());
  EXPECT_EQ(kinds.size(), std::variant_size_v<EventBody>);

  for (const GoldenLine& golden : golden_lines()) {
    EXPECT_EQ(without_wall_time(to_line(golden.event)), golden.line + '\n');
    const auto back = parse_event(golden.line);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(*back, golden.event) << golden.line;
  }
}

TEST(EventLinesTest, DefaultsAreLeftOut) {
  for (const GoldenLine& golden : golden_lines()) {
    const RankEvent plain{.header = {}, .body = default_of_kind(golden.event.body)};
    std::string line = fmt::format(R"({{"event":"{}","rank":0}})", kind_name(plain.body));
    if (plain.as<StepEvent>() != nullptr) {
      line = R"({"event":"step","loss_bits":"00000000","rank":0})";
    } else if (plain.as<NoticeEvent>() != nullptr) {
      line = R"({"event":"notice","rank":null})";
    }
    EXPECT_EQ(to_line(plain), line + '\n');
    EXPECT_EQ(*parse_event(line), plain) << line;
  }
}

}  // namespace
}  // namespace moetrain
