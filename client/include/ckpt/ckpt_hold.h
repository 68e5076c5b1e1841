/* libckpt: a view that stays while a reader restores it in parts. C ABI; conventions as in ckpt.h.
 *
 * No prune and no removal takes a held commit, nor what its view is made of. A single restore needs
 * no hold. A hold is a lease. It ends when it is released, when the session is closed, when the
 * reader makes no progress for `lease_ms` (a restore of the session counts, and so does
 * ckpt_hold_renew), or when root ends it by force. After a restart of the daemon the session asks
 * for it again by itself.
 *
 *   ckpt_hold_options which = CKPT_INIT(ckpt_hold_options);
 *   which.latest = 1;
 *   ckpt_hold* hold = NULL;
 *   if (ckpt_hold_take(session, &which, &hold) != CKPT_OK) ...   what ckpt_session_error() says
 *   ckpt_hold_info info = CKPT_INIT(ckpt_hold_info);
 *   ckpt_hold_query(hold, &info);        every restore names info.lineage and info.step
 *   ...  ckpt_restore_read(...);  ckpt_hold_renew(hold, 10000);  ckpt_restore_read(...);  ...
 *   ckpt_hold_release(hold); */
/* NOLINTBEGIN(readability-identifier-naming): names as C has them */
#ifndef CKPT_CKPT_HOLD_H_
#define CKPT_CKPT_HOLD_H_

#include <ckpt/ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ckpt_hold ckpt_hold;

typedef struct ckpt_hold_options {
  size_t struct_size;
  const char* run;     /* NULL: the session's */
  uint32_t lineage;    /* 0: the current one */
  uint64_t step;       /* with neither `latest` nor `tag` */
  int latest;          /* nonzero: the newest complete view */
  const char* tag;     /* not NULL: this tag */
  int newest;          /* nonzero: as in ckpt_restore_options; no commit needs to be at `step` */
  uint32_t timeout_ms; /* 0: 10,000 */
} ckpt_hold_options;

typedef struct ckpt_hold_info {
  size_t struct_size;
  uint32_t lineage; /* restores of the held view name exactly this lineage and step */
  uint64_t step;
  uint32_t lease_ms;
} ckpt_hold_info;

/* CKPT_E_NOT_FOUND: there is no such commit. CKPT_E_RESOURCE_EXHAUSTED: the session, the user or
 * all users hold as much as they may. CKPT_E_VERSION_MISMATCH: the daemon is older than holds. The
 * handle belongs to the session's thread, and is to be released before ckpt_close. */
CKPT_API ckpt_status ckpt_hold_take(ckpt_session* session, const ckpt_hold_options* options,
                                    ckpt_hold** hold);
CKPT_API ckpt_status ckpt_hold_query(const ckpt_hold* hold, ckpt_hold_info* info);
/* The reader is still at work: to be called between restores that lie far apart. Cheap; call it as
 * often as you like. A hold that has ended is taken again. If that cannot be done, the sentence
 * says why it had ended: what was read so far belongs to a commit that may be gone. */
CKPT_API ckpt_status ckpt_hold_renew(ckpt_hold* hold, uint32_t timeout_ms);
/* NULL does nothing. */
CKPT_API void ckpt_hold_release(ckpt_hold* hold);

#ifdef __cplusplus
}
#endif
#endif /* CKPT_CKPT_HOLD_H_ */
/* NOLINTEND(readability-identifier-naming) */
