/* Results of calls of libckpt. Conventions as in ckpt.h, which includes this file. */
/* NOLINTBEGIN(readability-identifier-naming): C naming */
#ifndef CKPT_CKPT_STATUS_H_
#define CKPT_CKPT_STATUS_H_

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CKPT_API __attribute__((visibility("default")))
#else
#define CKPT_API
#endif

typedef enum ckpt_status {
  CKPT_OK = 0,
  CKPT_E_INVALID_ARGUMENT = 1,
  CKPT_E_NOT_FOUND = 2,
  CKPT_E_ALREADY_EXISTS = 3,
  CKPT_E_CORRUPT = 4,
  CKPT_E_VERSION_MISMATCH = 5,
  CKPT_E_PERMISSION_DENIED = 6,
  CKPT_E_RESOURCE_EXHAUSTED = 7,
  CKPT_E_UNAVAILABLE = 8,
  CKPT_E_DEADLINE_EXCEEDED = 9,
  CKPT_E_ABORTED = 10, /* the epoch ended, or the snapshot failed */
  CKPT_E_IO = 11,
  CKPT_E_FAILED_PRECONDITION = 12
} ckpt_status;
CKPT_API const char* ckpt_status_name(ckpt_status status);

/* The exact cause of some errors, for callers that act on it: messages are for people and may
 * change. Numbers never change. 0 also comes from an older daemon; ignore unknown numbers. */
typedef enum ckpt_detail {
  CKPT_DETAIL_NONE = 0,
  CKPT_DETAIL_RUN_HAS_COMMITS = 1, /* ckpt_join with CKPT_RESUME_START: resume the run instead */
  CKPT_DETAIL_NO_ARENA_ROOM = 2,   /* ckpt_open: ckptd could give a smaller arena */
  CKPT_DETAIL_DISK_FULL = 3,       /* a snapshot: no space for its bytes */
  CKPT_DETAIL_JOURNAL_FULL = 4,    /* a snapshot: no space for records of the journal */
  CKPT_DETAIL_UNITS_DIFFER = 5,    /* ckpt_register_units, ckpt_grow: the run has other units */
  CKPT_DETAIL_RUN_IN_USE = 6,      /* the same, without a commit: replaced once nothing uses it */
  CKPT_DETAIL_NO_SUCH_RUN = 7,     /* a query: the run does not exist, or you may not read it */
  CKPT_DETAIL_NO_COMMIT = 8        /* a query: the run has no commit yet */
} ckpt_detail;

#ifdef __cplusplus
}
#endif

#endif
/* NOLINTEND(readability-identifier-naming) */
