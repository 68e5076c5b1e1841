/* A trainer in C99, one process per rank, over the C ABI alone: joins, goes on from what the epoch
 * names, checks what it restored, saves its share of the next step.
 *
 *   c_trainer SOCKET RUN RANK SIZE [hang]     hang: stops in the middle of its share, to be killed
 *
 * The state is one unit; byte i of step s is (s + i) mod 251, so every byte can be checked.
 */
#include <ckpt/ckpt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kUnitBytes = 600001, kTimeoutMs = 60000 };

static ckpt_session* session = NULL;

static void check(ckpt_status status, const char* what) {
  if (status == CKPT_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, ckpt_status_name(status),
          session != NULL ? ckpt_session_error(session) : "");
  exit(1);
}

static void open_session(const char* socket, const char* run) {
  char error[256] = "";
  ckpt_open_options options = CKPT_INIT(ckpt_open_options);
  options.socket = socket;
  options.run = run;
  options.client_name = "c_trainer";
  options.arena_bytes = 4u << 20;
  options.slab_bytes = 256u << 10;
  if (ckpt_open(&options, &session, error, sizeof error) != CKPT_OK) {
    fprintf(stderr, "open: %s\n", error);
    exit(1);
  }
}

static void register_unit(void) {
  const uint64_t shape[1] = {kUnitBytes};
  const ckpt_tensor tensor = {"state", "U8", shape, 1, 0};
  const ckpt_unit unit = {"state", -1, -1, NULL, kUnitBytes, &tensor, 1};
  check(ckpt_register_units(session, &unit, 1, "{}", kTimeoutMs), "register");
}

/* The whole state, whatever part of it this rank has saved. */
static uint64_t resume(const ckpt_epoch* epoch, unsigned char* state) {
  ckpt_restore_options options = CKPT_INIT(ckpt_restore_options);
  ckpt_range range = {0, 0, kUnitBytes, NULL};
  ckpt_restored restored;
  uint64_t i;
  if (!epoch->has_resume) return 0;
  range.data = state;
  options.lineage = epoch->resume_lineage;
  options.step = epoch->resume_step;
  check(ckpt_restore_read(session, &options, &range, 1, &restored), "restore");
  if (restored.version_step != epoch->resume_step) exit(3);
  for (i = 0; i < kUnitBytes; ++i) {
    if (state[i] != (epoch->resume_step + i) % 251) exit(4);
  }
  return epoch->resume_step;
}

static void save(uint64_t step, const ckpt_epoch* epoch, unsigned char* state, int hang) {
  const uint64_t share = kUnitBytes / epoch->size;
  const uint32_t unit = 0;
  const ckpt_metric metric = {"loss", 2.5};
  ckpt_fragment* fragments = calloc(epoch->size, sizeof *fragments);
  ckpt_snapshot_options options = CKPT_INIT(ckpt_snapshot_options);
  ckpt_snapshot_info info = CKPT_INIT(ckpt_snapshot_info);
  ckpt_snapshot* snapshot = NULL;
  uint64_t length;
  uint64_t i;
  uint32_t rank;
  for (rank = 0; rank < epoch->size; ++rank) {
    fragments[rank].rank = rank;
    fragments[rank].offset = rank * share;
    fragments[rank].length = rank + 1 < epoch->size ? share : kUnitBytes - rank * share;
  }
  for (i = 0; i < kUnitBytes; ++i) state[i] = (unsigned char)((step + i) % 251);
  options.step = step;
  options.units = &unit;
  options.unit_count = 1;
  options.fragments = fragments;
  options.fragment_count = epoch->size;
  options.metrics = &metric;
  options.metric_count = 1;
  check(ckpt_snapshot_begin(session, &options, &snapshot), "begin");
  i = fragments[epoch->rank].offset;
  length = hang ? fragments[epoch->rank].length / 2 : fragments[epoch->rank].length;
  check(ckpt_snapshot_write(snapshot, 0, i, state + i, length), "write");
  if (hang) {
    puts("hanging");
    fflush(stdout);
    pause();
  }
  check(ckpt_snapshot_end(snapshot), "end");
  check(ckpt_snapshot_wait(snapshot, CKPT_LEVEL_DURABLE, kTimeoutMs), "wait");
  check(ckpt_snapshot_query(snapshot, &info), "query");
  if (info.level != CKPT_LEVEL_DURABLE || info.bytes != length || info.durable_ns == 0) exit(5);
  ckpt_snapshot_free(snapshot);
  free(fragments);
}

/* Every rank says its number, and waits for its neighbour's. */
static void rendezvous(const ckpt_epoch* epoch) {
  char key[32];
  uint32_t value = epoch->rank;
  size_t bytes = sizeof value;
  snprintf(key, sizeof key, "rank.%u", (unsigned)epoch->rank);
  check(ckpt_kv_set(session, key, &value, sizeof value), "kv_set");
  snprintf(key, sizeof key, "rank.%u", (unsigned)((epoch->rank + 1) % epoch->size));
  check(ckpt_kv_get(session, key, &value, &bytes, kTimeoutMs), "kv_get");
  if (bytes != sizeof value || value != (epoch->rank + 1) % epoch->size) exit(6);
}

int main(int argc, char** argv) {
  unsigned char* state = malloc(kUnitBytes);
  ckpt_join_options join = CKPT_INIT(ckpt_join_options);
  ckpt_epoch epoch = CKPT_INIT(ckpt_epoch);
  uint64_t step;
  if (argc < 5 || state == NULL) return 2;
  open_session(argv[1], argv[2]);
  register_unit();
  join.rank = (uint32_t)strtoul(argv[3], NULL, 10);
  join.size = (uint32_t)strtoul(argv[4], NULL, 10);
  join.resume = CKPT_RESUME_CONTINUE;
  check(ckpt_join(session, &join, &epoch), "join");
  step = resume(&epoch, state);
  rendezvous(&epoch);
  save(step + 1, &epoch, state, argc > 5 && strcmp(argv[5], "hang") == 0);
  check(ckpt_leave(session, kTimeoutMs), "leave");
  ckpt_close(session);
  printf("%u\n", (unsigned)(step + 1));
  free(state);
  return 0;
}
