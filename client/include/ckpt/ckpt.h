/* libckpt: saves a trainer's state through ckptd and restores it. C ABI.
 *
 * Conventions
 *  - Handles are opaque. A session and the snapshots begun on it are used by one thread at a time;
 *    the library has no threads of its own, installs no signal handlers and raises no SIGPIPE.
 *  - Strings are NUL-terminated UTF-8 and copied. Arrays are a pointer and a count.
 *  - Options structs begin with `struct_size`; set it to sizeof the struct (CKPT_INIT does), so
 * that a program built against an older header keeps working with a newer library.
 *  - Every function that can fail returns a ckpt_status; 0 is success. The error message, which
 *    names the object, is ckpt_session_error(session) until the next call.
 *  - Times are milliseconds, sizes bytes. No wait is endless: calls that block take a timeout_ms.
 *  - When the daemon is lost, calls in progress keep trying to reconnect (backoff 10 to 100 ms)
 *    within their timeout; a snapshot that was being filled or written is handed to the new daemon.
 *    The mapping of the arena stays in place throughout. */
/* NOLINTBEGIN(readability-identifier-naming): C naming */
#ifndef CKPT_CKPT_H_
#define CKPT_CKPT_H_

#include <ckpt/ckpt_status.h> /* results of calls */
#include <ckpt/ckpt_units.h>  /* what units are */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CKPT_VERSION_MAJOR 0
#define CKPT_VERSION_MINOR 1

/* (major << 16) | minor of the loaded library. */
CKPT_API uint32_t ckpt_version(void);

#define CKPT_INIT(type) \
  { .struct_size = sizeof(type) }

typedef struct ckpt_session ckpt_session;
typedef struct ckpt_snapshot ckpt_snapshot;

/* ---- session ----------------------------------------------------------------------------------*/

/* Action on a snapshot with an anomaly: a float that is NaN or infinite, a unit whose bytes equal
 * its last version's, an expert omitted for longer than the run allows. */
typedef enum ckpt_alarms {
  CKPT_ALARMS_DEFAULT = 0, /* what the daemon's configuration says */
  CKPT_ALARMS_OFF = 1,     /* no check */
  CKPT_ALARMS_WARN = 2,    /* the snapshot is kept; log, history and ckpt_snapshot_info tell */
  CKPT_ALARMS_REFUSE = 3   /* the snapshot fails; the last good one stays */
} ckpt_alarms;

typedef struct ckpt_open_options {
  size_t struct_size;
  const char* socket;      /* path, or unix:PATH; NULL: $CKPTD_SOCKET */
  const char* run;         /* run name; NULL: $CKPTD_RUN */
  const char* client_name; /* shown in the daemon's log; may be NULL */
  uint64_t arena_bytes;    /* 0: the daemon's quota. Should hold at least two snapshots' shares */
  uint64_t slab_bytes;     /* 0: ckptd chooses, 64 MiB or an eighth of a small arena */
  int control;             /* nonzero: no arena, queries only */
  uint32_t timeout_ms;     /* of the first connection; 0: 10,000 */
  ckpt_alarms alarms;      /* of snapshots; the strictest setting of a snapshot's ranks counts */
  const struct ckpt_liveness* liveness; /* NULL, or see ckpt_liveness.h */
  int* error_detail;                    /* NULL, or where ckpt_open writes a ckpt_detail */
} ckpt_open_options;

/* Connects, and maps the arena. On failure *session is NULL and, if error is not NULL, the message
 * is written there (at most error_bytes, NUL included). */
CKPT_API ckpt_status ckpt_open(const ckpt_open_options* options, ckpt_session** session,
                               char* error, size_t error_bytes);
/* Open snapshots are aborted unless fully sealed. Unmaps the arena. */
CKPT_API void ckpt_close(ckpt_session* session);
CKPT_API const char* ckpt_session_error(const ckpt_session* session);
/* A ckpt_detail of the same error. */
CKPT_API int ckpt_session_error_detail(const ckpt_session* session);

/* The arena, to pin it once (cudaHostRegister). Valid until ckpt_close. */
CKPT_API void* ckpt_arena(const ckpt_session* session, uint64_t* bytes);
/* A descriptor that is readable when ckpt_poll has work to do. It changes on reconnect, and is
 * -1 while there is no daemon. */
CKPT_API int ckpt_fd(const ckpt_session* session);
/* Handles received messages and waits at most timeout_ms for the first one (0: does not wait).
 * A lost daemon is no error here: each call tries to reconnect when the backoff has passed. */
CKPT_API ckpt_status ckpt_poll(ckpt_session* session, uint32_t timeout_ms);

/* ---- units ------------------------------------------------------------------------------------*/

/* Declares the units of the run's state; unit ids are positions in this list. Every
 * rank gives the same list. metadata: a JSON text kept with the run (may be NULL); export writes
 * its member "hf_config" as config.json. An existing run must have been registered alike. */
CKPT_API ckpt_status ckpt_register_units(ckpt_session* session, const ckpt_unit* units,
                                         size_t count, const char* metadata, uint32_t timeout_ms);

CKPT_API ckpt_status ckpt_register_units_with(ckpt_session* session, const ckpt_unit* units,
                                              size_t count, const ckpt_register_options* options);

/* ---- group ------------------------------------------------------------------------------------*/

typedef enum ckpt_resume {
  CKPT_RESUME_START = 0,   /* from nothing; the run must not have commits */
  CKPT_RESUME_LATEST = 1,  /* the newest complete view; there must be one */
  CKPT_RESUME_AT_STEP = 2, /* RUN@STEP */
  /* the newest complete view of the current lineage, or from nothing; CKPT_E_CORRUPT if the run had
   * views and damage took them all */
  CKPT_RESUME_CONTINUE = 3,
  CKPT_RESUME_GO_ON = 4 /* a survivor of an elastic group, with its state */
} ckpt_resume;

/* Elastic: when an epoch ends (a member is lost, or asks for the next one), its survivors join with
 * GO_ON. The next epoch opens when all survivors have joined, or after grace_ms without the rest:
 * same lineage, ranks renumbered in the old order. Other processes, and late survivors, wait until
 * the members ask to GO_ON, and get their state from the members. Without survivors an epoch opens
 * from a view. A snapshot STAGED when its epoch ended becomes durable, or fails, in the next: its
 * step cannot be begun again before. Restores wait (CKPT_E_ABORTED if the epoch ends). */
typedef struct ckpt_join_options {
  size_t struct_size;
  uint32_t rank;
  uint32_t size;
  ckpt_resume resume;
  uint32_t resume_lineage; /* with AT_STEP; 0: the current one */
  uint64_t resume_step;    /* with AT_STEP */
  uint32_t timeout_ms;     /* until all ranks are there; 0: 60,000 */
  int elastic;             /* the same on all ranks of a group; the fields below only with it */
  uint64_t member;         /* this process's own number, kept from epoch to epoch */
  uint32_t grace_ms;       /* 0: the daemon's, 10,000. The longest of all counts */
  /* Called when ckpt_join has waited for a second, and when the reason changes: who holds the
   * rank's place, or which ranks are missing. It must not call the session. NULL: none. */
  void (*waiting)(void* waiting_user, const char* why);
  void* waiting_user;
  /* The number of this process's job: the same for all its processes, from epoch to epoch, and
   * random, so that no other job has it. While processes of another job are in the run's group or
   * ask to join, ckpt_join fails with CKPT_E_ALREADY_EXISTS and names one of them. A job ends when
   * its sessions have left or are closed. 0: unknown job, and nothing is refused. */
  uint64_t job;
} ckpt_join_options;

typedef struct ckpt_epoch {
  size_t struct_size;
  uint64_t epoch;
  uint32_t rank;
  uint32_t size;
  uint32_t lineage;        /* the lineage of this epoch's commits */
  int has_resume;          /* 0: start from nothing */
  uint32_t resume_lineage; /* every rank restores exactly this view */
  uint64_t resume_step;
  int goes_on; /* nonzero: the previous epoch's survivors continue its lineage; no restore */
  const uint64_t* members;       /* elastic: by rank, their numbers; until the next join */
  const int32_t* previous_ranks; /* goes_on: in the previous epoch; -1: new, without state */
  uint32_t previous_size;
} ckpt_epoch;

/* Joins the run's next epoch; returns when all `size` ranks have. */
CKPT_API ckpt_status ckpt_join(ckpt_session* session, const ckpt_join_options* options,
                               ckpt_epoch* epoch);
/* Nonzero once the joined epoch has ended (a member was lost). ckpt_poll or any blocking call
 * updates this. Writes at most `capacity` lost ranks to `ranks`; *count is their number. */
CKPT_API int ckpt_epoch_ended(const ckpt_session* session, uint32_t* ranks, size_t capacity,
                              size_t* count);
/* Processes that wait to join the joined epoch's elastic group. Updated as above. */
CKPT_API uint32_t ckpt_joiners_waiting(const ckpt_session* session);
/* Leaves in good order: the other members continue, and no rank counts as lost. */
CKPT_API ckpt_status ckpt_leave(ckpt_session* session, uint32_t timeout_ms);

/* Rendezvous of the joined epoch: a small shared key-value store. get waits until the key is set.
 * *bytes is the capacity of `value` on entry and the value's size on return. */
CKPT_API ckpt_status ckpt_kv_set(ckpt_session* session, const char* key, const void* value,
                                 size_t bytes);
CKPT_API ckpt_status ckpt_kv_get(ckpt_session* session, const char* key, void* value, size_t* bytes,
                                 uint32_t timeout_ms);

/* ---- snapshot ---------------------------------------------------------------------------------*/

typedef struct ckpt_fragment {
  uint32_t rank;
  uint32_t unit;
  uint64_t offset; /* in the unit */
  uint64_t length;
} ckpt_fragment;

typedef struct ckpt_metric {
  const char* name; /* "loss", "tokens" */
  double value;
} ckpt_metric;

/* Tokens that the router sent to an expert since the run began, cumulative as of the snapshot's
 * step and in its lineage: after a resume the counts continue from the counts at the resume
 * point. */
/* Maximum number of counts per snapshot. */
#define CKPT_EXPERT_TOKENS_MAX 65536

typedef struct ckpt_expert_tokens {
  uint32_t layer;
  uint32_t expert;
  uint64_t tokens;
} ckpt_expert_tokens;

/* Named bytes of one snapshot, outside its plan: see ckpt_blobs.h. */
typedef struct ckpt_blob {
  const char* name; /* 1 to 255 characters of A-Z a-z 0-9 . _ - % */
  uint64_t bytes;
  int is_global; /* nonzero: of the whole snapshot; one rank alone declares it */
} ckpt_blob;

typedef enum ckpt_out_of_slabs {
  CKPT_SLABS_WAIT = 0, /* ckpt_snapshot_write waits for one, up to its timeout */
  CKPT_SLABS_SKIP = 1  /* ckpt_snapshot_begin fails with CKPT_E_RESOURCE_EXHAUSTED, loudly, while
                          earlier snapshots hold the slabs. Slabs of a new arena whose memory is
                          still being prepared are waited for, as with CKPT_SLABS_WAIT */
} ckpt_out_of_slabs;

typedef struct ckpt_snapshot_options {
  size_t struct_size;
  uint64_t step; /* 0 to 2^64 - 2 */
  uint32_t attempt;
  const uint32_t* units; /* the snapshot's units, any order */
  size_t unit_count;
  const ckpt_fragment* fragments; /* of all ranks: the whole plan, the same on every rank */
  size_t fragment_count;
  ckpt_out_of_slabs out_of_slabs;
  const ckpt_metric* metrics; /* attached to the commit; from any rank */
  size_t metric_count;
  uint32_t timeout_ms; /* for slabs; 0: 60,000 */
  /* Kept with the commit, so that its history can tell the tokens that a stale expert has lost. Of
   * all ranks together; given by any one rank (others NULL or the same). Each pair once, and only
   * pairs of existing units; never less than in an earlier commit; up to CKPT_EXPERT_TOKENS_MAX. */
  const ckpt_expert_tokens* expert_tokens;
  size_t expert_token_count;
  /* An alarm is raised for each expert that the plan omits and whose newest version is more than
   * this many steps old; 0: none. The smallest value of all ranks counts. */
  uint64_t staleness_max;
  int no_wait; /* nonzero: ckpt_snapshot_begin asks and returns; the first ckpt_snapshot_write
                  waits for slabs, or fails with CKPT_E_ABORTED and the daemon's objection to the
                  plan. Without a daemon, begin waits anyway */
  /* Units of `units`, not all of them, that stay at the level CKPT_LEVEL_STAGED and are never
   * written: visible with the snapshot's commit to restores with ckpt_restore_options.memory, until
   * slabs are needed, a newer version exists, or the daemon dies. */
  const uint32_t* memory_units;
  size_t memory_unit_count;
  /* Tokens that each expert has lost since the run began, in the order of expert_tokens: recoveries
   * discarded their updates, also before a resume. As many as expert_tokens, or 0: none were lost,
   * or the trainer does not count them; the metric "plt", of 0, tells that none were. Never more
   * than the expert's tokens; never less than in an earlier commit. */
  const uint64_t* expert_lost;
  size_t expert_lost_count;
  /* Nonzero: this rank's part may exceed the arena. If it does, its slabs are free again as soon as
   * they are written: ckpt_snapshot_write waits for slabs, and the snapshot does not survive a
   * restart of the daemon once a slab was reused. */
  int streams;
  uint64_t plan_ns; /* time that the caller took to make the plan: part of plan_ns and stall_ns of
                       ckpt_snapshot_info */
  const ckpt_blob* blobs; /* that this rank writes (ckpt_blob_write) before ckpt_snapshot_end */
  size_t blob_count;
} ckpt_snapshot_options;

/* Starts a snapshot of the joined epoch. All members must give the same plan. */
CKPT_API ckpt_status ckpt_snapshot_begin(ckpt_session* session,
                                         const ckpt_snapshot_options* options,
                                         ckpt_snapshot** snapshot);
/* Copies [offset, offset+length) of the unit (of this rank's fragments, whole or in ascending
 * pieces) from host memory into the arena, with its CRC32C in the same pass. On return, `data` may
 * be changed. Full slabs are handed to the daemon as they fill. */
CKPT_API ckpt_status ckpt_snapshot_write(ckpt_snapshot* snapshot, uint32_t unit, uint64_t offset,
                                         const void* data, uint64_t length);
/* Room in the arena that other code fills: a GPU's copy engine. */
typedef struct ckpt_place {
  void* data;
  uint64_t length;
  uint64_t id;
} ckpt_place;
/* Instead of ckpt_snapshot_write: lends a place for the next bytes of a fragment, at most `length`
 * of them; fewer at a slab's end, then reserve the rest with another call. Waits at most
 * timeout_ms for a slab (0: the timeout of the snapshot's options).
 * The caller owns the place until ckpt_snapshot_filled, also if the snapshot fails meanwhile. */
CKPT_API ckpt_status ckpt_snapshot_reserve(ckpt_snapshot* snapshot, uint32_t unit, uint64_t offset,
                                           uint64_t length, uint32_t timeout_ms, ckpt_place* place);
/* The place is filled and no code writes to it any more; crc32c is that of its bytes. Call once for
 * every place, in any order, before ckpt_snapshot_end and ckpt_snapshot_free. CKPT_E_ABORTED if
 * the snapshot has failed: the place is returned anyway. */
CKPT_API ckpt_status ckpt_snapshot_filled(ckpt_snapshot* snapshot, uint64_t place_id,
                                          uint32_t crc32c);
/* CRC32C of the bytes, continuing from `crc` (0 at the start). Any thread may call it. */
CKPT_API uint32_t ckpt_crc32c(const void* data, uint64_t length, uint32_t crc);
/* This rank has written everything: hands over the last slab. The snapshot continues by itself. */
CKPT_API ckpt_status ckpt_snapshot_end(ckpt_snapshot* snapshot);
CKPT_API ckpt_status ckpt_snapshot_abort(ckpt_snapshot* snapshot, const char* reason);

typedef enum ckpt_level {
  CKPT_LEVEL_OPEN = 0,
  CKPT_LEVEL_STAGED = 1,  /* all ranks' bytes are in arenas: survives the trainers */
  CKPT_LEVEL_DURABLE = 2, /* committed on this node's disk */
  CKPT_LEVEL_FAILED = 3
} ckpt_level;
typedef struct ckpt_snapshot_info {
  size_t struct_size;
  ckpt_level level;
  ckpt_status failure; /* with FAILED */
  const char* reason;  /* with FAILED; valid until ckpt_snapshot_free */
  uint64_t bytes;      /* written by this rank */
  uint64_t stall_ns;   /* time for which the snapshot blocked its caller, whatever the reason, of
                          a failed one too: plan_ns of the options, and all calls of the snapshot:
                          begin, write, reserve, filled, end, wait */
  uint64_t wait_ns;    /* part of stall_ns: waiting for slabs or for the daemon */
  uint64_t durable_ns; /* from begin until this rank learned that it is durable; 0 before */
  const char* alarms;  /* with DURABLE: the snapshot's anomalies, in a sentence; NULL: none.
                          Valid until ckpt_snapshot_free */
  int detail;          /* with FAILED: a ckpt_detail */
  /* Where the time went. Parts of this rank, growing until its end: */
  uint64_t plan_ns;      /* making and checking the plan */
  uint64_t begin_ns;     /* until the daemon has answered; with no_wait in slab_wait_ns */
  uint64_t slab_wait_ns; /* until slabs were free */
  uint64_t copy_ns;      /* copies with CRC32C; of places, while any is lent: not in stall_ns */
  uint64_t seal_ns;      /* handover of slabs */
  /* Parts of the snapshot as a whole, once it is DURABLE; 0 before, and from older daemons: */
  uint64_t write_ns;   /* from the last seal of any rank until all is written and checked */
  uint64_t sync_ns;    /* fdatasync, shared with snapshots that commit at the same time */
  uint64_t journal_ns; /* append and sync of the commit record */
} ckpt_snapshot_info;
/* Does not block or read the socket: call ckpt_poll for news. */
CKPT_API ckpt_status ckpt_snapshot_query(const ckpt_snapshot* snapshot, ckpt_snapshot_info* info);
/* Waits until the level is reached (CKPT_OK) or the snapshot failed (CKPT_E_ABORTED). */
CKPT_API ckpt_status ckpt_snapshot_wait(ckpt_snapshot* snapshot, ckpt_level level,
                                        uint32_t timeout_ms);
/* Frees the handle. An ended snapshot continues; any other is aborted. */
CKPT_API void ckpt_snapshot_free(ckpt_snapshot* snapshot);

/* ---- restore ----------------------------------------------------------------------------------*/

typedef struct ckpt_range {
  uint32_t unit;
  uint64_t offset;
  uint64_t length;
  void* data; /* where the bytes go */
} ckpt_range;

typedef struct ckpt_restored {
  uint32_t version_lineage;
  uint64_t version_step;
  const char* note;      /* why the version is older than the view's; NULL if it is not */
  uint64_t bytes_memory; /* of this range, by source */
  uint64_t bytes_disk;
  ckpt_level level; /* STAGED: the version is in memory only; DURABLE: on this node's disk */
} ckpt_restored;

/* Whether GPUDirect Storage fills a GPU's memory from the disk, without the arena. */
typedef enum ckpt_direct {
  CKPT_DIRECT_DEFAULT = 0, /* from the environment: CKPTD_CUFILE=off, auto or required */
  CKPT_DIRECT_OFF = 1,     /* also used if CKPTD_CUFILE is not set */
  CKPT_DIRECT_AUTO = 2,    /* if possible; else through the arena */
  CKPT_DIRECT_REQUIRED = 3 /* an error if impossible */
} ckpt_direct;

typedef struct ckpt_restore_options {
  size_t struct_size;
  const char* run;  /* NULL: the session's */
  uint32_t lineage; /* 0: the current one */
  uint64_t step;
  int latest;          /* nonzero: the newest complete view */
  const char* tag;     /* not NULL: this tag */
  int exact;           /* nonzero: an older version is an error, not a fallback */
  uint32_t timeout_ms; /* without any progress; 0: 60,000 */
  /* Nonzero: each unit's newest version not after `step`, in the lineage and its ancestors, whether
   * or not a commit is at the step or other units have a version. Not with `latest` or `tag`. */
  int newest;
  int memory;           /* nonzero: versions that are only in memory count, too */
  size_t restored_size; /* sizeof(ckpt_restored), the distance of entries; 0: without `level` */
  ckpt_direct direct;   /* ckpt_cuda_restore alone: see ckpt_cuda.h */
  uint64_t locate_bytes_max; /* ckpt_restore_begin alone: see ckpt_direct.h; 0: never */
} ckpt_restore_options;

/* Copies the ranges out of the view and checks each against its CRC; a mismatch is read again,
 * once. `restored`, if not NULL, has one entry per range; its notes are valid until the
 * session's next restore. */
CKPT_API ckpt_status ckpt_restore_read(ckpt_session* session, const ckpt_restore_options* options,
                                       const ckpt_range* ranges, size_t count,
                                       ckpt_restored* restored);

/* ckpt_windows.h lends the bytes in the arena instead, for other code to copy out. */

/* Readers that need several restores of one view: ckpt_hold.h keeps it from being removed.
 * Blobs are listed and read by ckpt_blobs.h. */

/* ---- questions --------------------------------------------------------------------------------*/

/* Runs a ckptctl verb with arguments as JSON; *json is the answer (free with ckpt_free), *exit_code
 * as documented for ckptctl. */
CKPT_API ckpt_status ckpt_query(ckpt_session* session, const char* verb, const char* arguments,
                                uint32_t timeout_ms, char** json, int* exit_code);
CKPT_API void ckpt_free(void* memory);

#ifdef __cplusplus
}
#endif

#endif /* CKPT_CKPT_H_ */
/* NOLINTEND(readability-identifier-naming) */
