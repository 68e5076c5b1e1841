/* Restore windows whose bytes the caller reads from disk itself: past the arena, into a GPU.
 * Conventions as in ckpt.h; libckpt_cuda does all of this in ckpt_cuda_restore.
 *
 * With `locate_bytes_max` of the restore's options, bytes on disk are not lent in the arena: a
 * window then has an id and pieces, but `data` is NULL, and ckpt_restore_file locates the bytes.
 * `at` of its pieces counts from the start of that file; their crc32c is meaningless. The caller
 * reads whole fragments, checks them, reports the failed ones, and releases the window. Windows may
 * be released in any order; if two windows have the same bytes, the later one counts.
 */
/* NOLINTBEGIN(readability-identifier-naming): C naming */
#ifndef CKPT_CKPT_DIRECT_H_
#define CKPT_CKPT_DIRECT_H_

#include <ckpt/ckpt_windows.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that were saved together. Read the fragment whole: crc32c covers all of it. */
typedef struct ckpt_restore_fragment {
  uint64_t file_offset;
  uint64_t length;
  size_t first_piece; /* index in the window's pieces; they lie inside the fragment */
  size_t piece_count;
  uint32_t crc32c;
} ckpt_restore_fragment;

typedef struct ckpt_restore_located {
  size_t struct_size;
  int file;         /* O_RDONLY | O_DIRECT; the restore closes it when the window is released */
  uint64_t segment; /* the same number, the same file */
  /* Ascending and disjoint; their blocks of 4 KiB, each counted once, are at most locate_bytes_max
     bytes. Valid until the next ckpt_restore_next. */
  const ckpt_restore_fragment* fragments;
  size_t fragment_count;
} ckpt_restore_located;

/* The file of the window that ckpt_restore_next returned last. CKPT_E_FAILED_PRECONDITION: the
 * window is in the arena, or there is none. */
CKPT_API ckpt_status ckpt_restore_file(ckpt_restore* restore, ckpt_restore_located* located);

#define CKPT_ALL_FRAGMENTS SIZE_MAX
/* Before the window is released: this fragment cannot be read, or does not match its crc32c. The
 * daemon then reads it, and its bytes come in a later window: the same bytes, or those of an older
 * version. CKPT_ALL_FRAGMENTS: nothing of the window was read, and all further windows must come
 * through the arena. `reason` is a sentence for notes and logs. */
CKPT_API void ckpt_restore_failed(ckpt_restore* restore, uint64_t window_id, size_t fragment,
                                  const char* reason);
/* Why no window has a file although requested; NULL if windows may have one. Valid until the next
 * call for this restore. With `direct` REQUIRED, the restore fails with this reason instead. */
CKPT_API const char* ckpt_restore_not_located(const ckpt_restore* restore);

/* Slab size of the session's arena: the most that a window in the arena holds, and a sound
 * locate_bytes_max. 0: the session has no arena. */
CKPT_API uint64_t ckpt_slab_bytes(const ckpt_session* session);

#ifdef __cplusplus
}
#endif
#endif /* CKPT_CKPT_DIRECT_H_ */
/* NOLINTEND(readability-identifier-naming) */
