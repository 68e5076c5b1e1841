/* libckpt: named blobs, kept with one commit. C ABI; conventions as in ckpt.h.
 *
 * A blob is bytes with a name, of one rank or of the whole snapshot: a random number generator, the
 * position of a data loader. Each snapshot declares its own (ckpt_snapshot_options.blobs), outside
 * the plan that all ranks agree on. A blob belongs to its commit alone: a restore never takes an
 * older one instead, and it is removed with its commit.
 *
 *   ckpt_blob rng = {"rng", sizeof state, 0};
 *   options.blobs = &rng;                      one per blob that this rank writes
 *   options.blob_count = 1;
 *   ckpt_snapshot_begin(session, &options, &snapshot);
 *   ckpt_blob_write_options what = CKPT_INIT(ckpt_blob_write_options);
 *   what.name = "rng";  what.data = state;  what.length = sizeof state;
 *   ckpt_blob_write(snapshot, &what);          before ckpt_snapshot_end
 *   ...
 *   ckpt_blob_read_options from = CKPT_INIT(ckpt_blob_read_options);
 *   from.lineage = epoch.resume_lineage;  from.step = epoch.resume_step;
 *   from.name = "rng";  from.rank = epoch.rank;  from.data = state;  from.capacity = sizeof state;
 *   ckpt_blob_read(session, &from, &bytes);
 *
 * CKPT_E_VERSION_MISMATCH: the daemon is older than blobs. */
/* NOLINTBEGIN(readability-identifier-naming): C naming */
#ifndef CKPT_CKPT_BLOBS_H_
#define CKPT_CKPT_BLOBS_H_

#include <ckpt/ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of all blobs of a rank together, and number of blobs of all ranks, per snapshot. */
#define CKPT_BLOB_BYTES_MAX 67108864
#define CKPT_BLOBS_MAX 4096

typedef struct ckpt_blob_write_options {
  size_t struct_size;
  const char* name; /* declared by this rank */
  int is_global;    /* as declared */
  const void* data; /* the next `length` bytes of the blob; may be changed on return */
  uint64_t length;
} ckpt_blob_write_options;

/* Writes a blob, whole or in ascending pieces; like ckpt_snapshot_write in every other way. */
CKPT_API ckpt_status ckpt_blob_write(ckpt_snapshot* snapshot,
                                     const ckpt_blob_write_options* options);

typedef struct ckpt_blob_list_options {
  size_t struct_size;
  const char* run;     /* NULL: the session's */
  uint32_t lineage;    /* 0: the current one */
  uint64_t step;       /* with neither `latest` nor `tag` */
  int latest;          /* nonzero: the newest complete view */
  const char* tag;     /* not NULL: this tag */
  uint32_t timeout_ms; /* 0: 10,000 */
} ckpt_blob_list_options;

typedef struct ckpt_blob_entry {
  const char* name;
  uint32_t rank; /* that wrote it; of a global blob, too */
  int is_global;
  uint64_t bytes;
  uint32_t crc32c;
  uint32_t unit; /* names the blob in a ckpt_range: a restore of the listed lineage and step may
                    read blobs and units together */
} ckpt_blob_entry;

typedef struct ckpt_blob_list {
  size_t struct_size;
  uint32_t lineage; /* of the commit that was found */
  uint64_t step;
  const ckpt_blob_entry* entries; /* by rank; valid until the session's next list of blobs */
  size_t count;
} ckpt_blob_list;

/* Lists the blobs of the commit itself. CKPT_E_NOT_FOUND: there is no such commit;
 * CKPT_E_CORRUPT: the commit is damaged. */
CKPT_API ckpt_status ckpt_blob_list_read(ckpt_session* session,
                                         const ckpt_blob_list_options* options,
                                         ckpt_blob_list* list);

typedef struct ckpt_blob_read_options {
  size_t struct_size;
  const char* run; /* the commit, as in ckpt_blob_list_options */
  uint32_t lineage;
  uint64_t step;
  int latest;
  const char* tag;
  const char* name;
  uint32_t rank; /* the rank that wrote it; not for a global blob */
  int is_global; /* nonzero: the global blob of this name */
  void* data;    /* where the bytes go */
  uint64_t capacity;
  uint32_t timeout_ms; /* 0: 60,000 */
} ckpt_blob_read_options;

/* Reads one blob, checked against its CRC32C; *bytes is its size. CKPT_E_NOT_FOUND: the commit has
 * no such blob. CKPT_E_RESOURCE_EXHAUSTED: the blob is larger than `capacity`, and nothing was
 * read. Needs an arena, as every restore. */
CKPT_API ckpt_status ckpt_blob_read(ckpt_session* session, const ckpt_blob_read_options* options,
                                    uint64_t* bytes);

#ifdef __cplusplus
}
#endif
#endif /* CKPT_CKPT_BLOBS_H_ */
/* NOLINTEND(readability-identifier-naming) */
