/* Restores for code that copies the bytes out of the arena itself. Conventions as in ckpt.h. */
/* NOLINTBEGIN(readability-identifier-naming): C naming */
#ifndef CKPT_CKPT_WINDOWS_H_
#define CKPT_CKPT_WINDOWS_H_

#include <ckpt/ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A restore, window by window, for code that copies the bytes out of the arena itself: a GPU's copy
 * engine (ckpt_cuda_restore does). Take windows in order: if two have the same bytes, the later one
 * counts, since a fallback to an older version, or a lost daemon, delivers bytes again.
 *
 *   ckpt_restore_begin(session, &options, ranges, count, &restore);
 *   while (ckpt_restore_next(restore, 1000, &window) == CKPT_OK && !window.complete) {
 *     ... copy the pieces out and check them; call ckpt_restore_mismatch for each wrong piece
 *     ... ckpt_restore_release(restore, window.id);   // in any order, as copies end
 *   }
 *   ckpt_restore_end(restore, restored);
 *   ckpt_restore_free(restore);
 */
typedef struct ckpt_restore ckpt_restore;
typedef struct ckpt_restore_piece {
  size_t range;    /* index in `ranges` */
  uint64_t offset; /* from the start of the range */
  uint64_t length;
  uint64_t at;     /* from the start of the window's data */
  uint32_t crc32c; /* of these bytes */
} ckpt_restore_piece;
typedef struct ckpt_restore_window {
  size_t struct_size;
  uint64_t id;      /* 0: no window has come within the timeout, or complete */
  int complete;     /* nonzero: everything has been lent. Later calls return it again, or windows
                       if a mismatch was reported meanwhile */
  const void* data; /* in the arena; the daemon does not touch it until the window is released */
  uint64_t bytes;
  const ckpt_restore_piece* pieces; /* inside data; valid until the next call for this restore */
  size_t piece_count;
} ckpt_restore_window;

/* Asks the daemon; `data` of the ranges is not used. A session has one restore at a time, of either
 * kind. Free the handle before closing the session. */
CKPT_API ckpt_status ckpt_restore_begin(ckpt_session* session, const ckpt_restore_options* options,
                                        const ckpt_range* ranges, size_t count,
                                        ckpt_restore** restore);
/* Waits at most timeout_ms for the next window. No window in that time is no error; no window for
 * the timeout of the options, while none was lent, is an error. After an error the handle can only
 * be freed. */
CKPT_API ckpt_status ckpt_restore_next(ckpt_restore* restore, uint32_t timeout_ms,
                                       ckpt_restore_window* window);
CKPT_API void ckpt_restore_release(ckpt_restore* restore, uint64_t window_id);
/* Bytes copied out of the window, released or not, do not match the piece's crc32c. Everything is
 * read again, once: ckpt_restore_next lends it anew. At the next mismatch, ckpt_restore_next fails
 * with CKPT_E_CORRUPT.
 */
CKPT_API void ckpt_restore_mismatch(ckpt_restore* restore, uint64_t window_id,
                                    const ckpt_restore_piece* piece);
/* Ends a complete restore. `restored` as in ckpt_restore_read. */
CKPT_API ckpt_status ckpt_restore_end(ckpt_restore* restore, ckpt_restored* restored);
/* Returns all lent windows. */
CKPT_API void ckpt_restore_free(ckpt_restore* restore);

#ifdef __cplusplus
}
#endif
#endif /* CKPT_CKPT_WINDOWS_H_ */
/* NOLINTEND(readability-identifier-naming) */
