/* Windows of a restore whose bytes their taker reads from disk itself: past the arena, into a GPU.
 * Conventions as in ckpt.h; libckpt_cuda does all of this in ckpt_cuda_restore.
 *
 * With `locate_bytes_max` of the restore's options, what lies on disk is not lent in the arena: a
 * window then has an id and pieces, but `data` is NULL, and ckpt_restore_file tells where the bytes
 * are. `at` of its pieces counts from the start of that file, their crc32c means nothing. Whoever
 * takes it reads whole fragments, checks them, tells which have failed, and releases the window, in
 * the order in which windows come or not; but what a later window brings, counts.
 */
/* NOLINTBEGIN(readability-identifier-naming): names as C has them */
#ifndef CKPT_CKPT_DIRECT_H_
#define CKPT_CKPT_DIRECT_H_

#include <ckpt/ckpt_windows.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What was saved together. It has to be read whole: crc32c is that of all of it. */
typedef struct ckpt_restore_fragment {
  uint64_t file_offset;
  uint64_t length;
  size_t first_piece; /* of the window's; they lie inside it */
  size_t piece_count;
  uint32_t crc32c;
} ckpt_restore_fragment;

typedef struct ckpt_restore_located {
  size_t struct_size;
  int file;         /* O_RDONLY | O_DIRECT; the restore closes it when the window is released */
  uint64_t segment; /* the same number, the same file */
  /* Ascending and apart; their blocks of 4 KiB, each counted once, are locate_bytes_max bytes at
     most. Valid until the next ckpt_restore_next. */
  const ckpt_restore_fragment* fragments;
  size_t fragment_count;
} ckpt_restore_located;

/* Of the window that ckpt_restore_next has just shown. CKPT_E_FAILED_PRECONDITION: it is in the
 * arena, or there is none. */
CKPT_API ckpt_status ckpt_restore_file(ckpt_restore* restore, ckpt_restore_located* located);

#define CKPT_ALL_FRAGMENTS SIZE_MAX
/* Before the window is released: this fragment cannot be read, or is not what crc32c is of. The
 * daemon reads it then, and what it finds comes in a later window: the same bytes, or those of an
 * older version. CKPT_ALL_FRAGMENTS: nothing of it was read, and from here on everything shall come
 * through the arena. `reason` is a sentence for notes and logs. */
CKPT_API void ckpt_restore_failed(ckpt_restore* restore, uint64_t window_id, size_t fragment,
                                  const char* reason);
/* Why no window has a file although it was asked for; NULL if they may have. Valid until the next
 * call for this restore. With `direct` REQUIRED it is the error of the restore instead. */
CKPT_API const char* ckpt_restore_not_located(const ckpt_restore* restore);

/* Of a slab of the session's arena: the most that a window in it brings, and a sound
 * locate_bytes_max. 0: the session has no arena. */
CKPT_API uint64_t ckpt_slab_bytes(const ckpt_session* session);

#ifdef __cplusplus
}
#endif
#endif /* CKPT_CKPT_DIRECT_H_ */
/* NOLINTEND(readability-identifier-naming) */
