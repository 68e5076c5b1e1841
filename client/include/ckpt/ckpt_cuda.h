/* libckpt_cuda: snapshots of state that is in GPU memory, and the way back. Conventions as in
 * ckpt.h.
 *
 * Gathering has the lowest priority of the device's: it gives way to the kernels of a stream that
 * was made with a higher one (cudaStreamCreateWithPriority; the default is the lowest).
 *
 * Small pieces are gathered on the device by one kernel, which takes their CRC32Cs on the way, and
 * drained into the arena by the copy engine. Long runs of a large snapshot are drained from where
 * they lie; a kernel reads them for their CRC32Cs. Nothing of that waits for the host, and the
 * trainer's stream waits until a unit may be overwritten, and only where it asks to:
 *
 *   ckpt_snapshot_begin(session, &options, &snapshot);
 *   ckpt_cuda_stage(cuda, snapshot, pieces, count, stream);   // returns at once
 *   ... forward, backward: the copies run beside it ...   // ckpt_cuda_advance, with ahead_bytes
 *   ckpt_cuda_wait_gathered(cuda, CKPT_CUDA_ALL_UNITS, stream);   // before the optimizer writes
 *   ... optimizer ...
 *   ckpt_cuda_poll(cuda, NULL);   // now and then, as ckpt_poll: hands over what has arrived
 *
 * A restore is copied out of the arena by the copy engine; a kernel checks the CRC32Cs and scatters
 * the bytes: ckpt_cuda_restore.
 *
 * CUDA graphs. Every function here may be called while any thread captures a stream, in any capture
 * mode: the capture stays valid, and nothing of the call becomes part of the graph. A call cannot
 * be captured itself: where its `stream` is being captured, ckpt_cuda_stage,
 * ckpt_cuda_wait_gathered and ckpt_cuda_restore return CKPT_E_FAILED_PRECONDITION, and the capture
 * stays valid. Call them between launches of the graph instead:
 *
 *   ckpt_cuda_stage(cuda, snapshot, pieces, count, stream);
 *   cudaGraphLaunch(forward_and_backward, stream);
 *   ckpt_cuda_wait_gathered(cuda, CKPT_CUDA_ALL_UNITS, stream);
 *   cudaGraphLaunch(optimizer, stream);
 *
 * The default stream (NULL) counts as captured while a blocking stream of its device is.
 */
/* NOLINTBEGIN(readability-identifier-naming): names as C has them */
#ifndef CKPT_CKPT_CUDA_H_
#define CKPT_CKPT_CUDA_H_

#include <ckpt/ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* cudaStream_t points to one */

typedef struct ckpt_cuda ckpt_cuda;

typedef struct ckpt_cuda_options {
  size_t struct_size;
  int device;
  uint64_t gather_bytes; /* device memory to gather into; 0: 256 MiB. The last gather_bytes of a
                            snapshot are gathered at once, in the order of its pieces; what is in
                            front of them as fast as it drains. Up to a quarter of it is gathered at
                            a time */
  uint64_t chunk_bytes;  /* drained at a time; 0: 16 MiB, or more where ckpt_cuda_open measures that
                            the link to the host moves that in less than 150 us. The device's copy
                            engine does one copy after the other: what the trainer copies to the
                            host meanwhile waits for one chunk at most, 0.3 ms at 50 GB/s */
  uint32_t timeout_ms;   /* wherever a call waits for the device; 0: 60,000 */
  uint64_t ahead_bytes;  /* ckpt_cuda_stage queues so much, in whole groups of chunks, before it
                            returns; 0: everything, a few calls of CUDA for each chunk, while the
                            device may be idle. For a trainer that calls ckpt_cuda_advance */
  uint64_t direct_bytes; /* runs of device memory with at least so many bytes, in front of a
                            snapshot's last gather_bytes, are not gathered: the copy engine takes
                            them from where they lie. 0: 1 MiB, or a sixteenth of chunk_bytes if
                            that is more. UINT64_MAX: none */
  /* Called by ckpt_cuda_open before it pins the arena and after each 4 GiB of it, with the bytes
   * that are pinned and those of the arena. It must not call the session. NULL: none. */
  void (*pinning)(void* pinning_user, uint64_t pinned, uint64_t total);
  void* pinning_user;
} ckpt_cuda_options;

/* Pins the session's arena, takes the device memory and loads the kernels: once per session. To pin
 * 64 GiB may take half a minute. Pages of the arena that nobody has touched yet come from the
 * device's NUMA node, as far as the system allows it; those that ckptd had ready (warm_pool) stay
 * where they are. The session must outlive it. On failure *cuda is NULL, nothing stays pinned, and
 * `error` has the sentence, as in ckpt_open: CKPT_E_RESOURCE_EXHAUSTED where memory is short, with
 * how much of the arena was pinned. */
CKPT_API ckpt_status ckpt_cuda_open(ckpt_session* session, const ckpt_cuda_options* options,
                                    ckpt_cuda** cuda, char* error, size_t error_bytes);
/* Waits for copies that are under way, at most the timeout of its options. What the device still
 * uses then stays pinned and taken until the process ends, as does all memory given back while it
 * goes on: CKPT_E_DEADLINE_EXCEEDED says so, and that calls of CUDA that free memory or unpin it
 * would wait for the device without a bound, whoever makes them. Snapshots that are still being
 * staged are aborted: their handles must still be there. */
CKPT_API ckpt_status ckpt_cuda_close(ckpt_cuda* cuda);
/* The sentence of the last call that failed. */
CKPT_API const char* ckpt_cuda_error(const ckpt_cuda* cuda);

typedef struct ckpt_cuda_pin_info {
  size_t struct_size;
  uint64_t bytes;   /* of the arena, all of it pinned */
  uint64_t ns;      /* that took */
  int numa_node;    /* of the device; -1: unknown, or the machine has one node */
  int on_numa_node; /* nonzero: pages come from that node, but those that were touched before */
} ckpt_cuda_pin_info;
/* How the session's arena was pinned: the newest, if the daemon did not take the first one back. */
CKPT_API ckpt_status ckpt_cuda_pinned(const ckpt_cuda* cuda, ckpt_cuda_pin_info* info);

typedef struct ckpt_cuda_piece {
  uint32_t unit;
  uint64_t offset;  /* in the unit */
  const void* data; /* device memory; best aligned to 16 bytes */
  uint64_t length;
} ckpt_cuda_piece;

/* Queues the gathering and draining of all pieces: this rank's fragments of the snapshot, in any
 * order of units, ascending within each: all of them in one call. They are read as they are when
 * `stream` has come as far as it is queued now. With `ahead_bytes` in the options only the first
 * are queued here; of the others, too, everything that can be refused is refused here, and the
 * array may go. May wait for slabs, as ckpt_snapshot_write does; a snapshot that `streams` may be
 * larger than the arena. The snapshot's handle must live until ckpt_cuda_poll has ended it. On
 * failure the snapshot is aborted, and the call has waited, at most the timeout of the options, for
 * what it had queued: nothing reads the pieces then, and the handle may go.
 * CKPT_E_INVALID_ARGUMENT, with the unit, for a piece that is neither memory of the session's
 * device nor pinned memory of the host, by its first byte or its last: each time anew, so that
 * memory that was freed meanwhile is refused, too. Memory of the device may come from cudaMalloc,
 * from a pool of virtual memory (cuMemMap, as PyTorch's expandable segments), or from another
 * process (cudaIpcOpenMemHandle). A piece lies within one allocation.
 * CKPT_E_FAILED_PRECONDITION where `stream` is being captured into a CUDA graph. */
CKPT_API ckpt_status ckpt_cuda_stage(ckpt_cuda* cuda, ckpt_snapshot* snapshot,
                                     const ckpt_cuda_piece* pieces, size_t count,
                                     struct CUstream_st* stream);

#define CKPT_CUDA_ALL_UNITS UINT32_MAX
/* From here on `stream` goes on only when the unit, of every snapshot that is being staged, has
 * been gathered, or drained where it is not gathered: then it may be overwritten. Waits on the
 * device, not here. No unit is waited for longer than until all but gather_bytes of the snapshot
 * have been drained. What is gathered together with the unit's last byte is waited for, too: at
 * most a quarter of gather_bytes. With
 * `ahead_bytes`, what is not queued yet up to there is queued first; on failure no snapshot is
 * being staged any more, but where `stream` is being captured: that is refused, and changes
 * nothing. Nothing but this call makes what was staged safe to overwrite then: a
 * stream, or a device, that has done all of its work has not gathered what nobody has queued. */
CKPT_API ckpt_status ckpt_cuda_wait_gathered(ckpt_cuda* cuda, uint32_t unit,
                                             struct CUstream_st* stream);

/* With `ahead_bytes`: queues the kernels of the next few chunks, or the copies of one chunk: about
 * ten calls of CUDA at most, if no more than gather_bytes are under way then. For the points at
 * which the trainer waits for its device anyway, again and again while it does; the link to the
 * host is idle after at most gather_bytes that nobody has queued more behind. Never waits; does
 * nothing, at the price of a comparison, while nothing is being staged. Does not use the session:
 * what fails is said by the next call. ckpt_cuda_poll and ckpt_cuda_drain queue more, too. */
CKPT_API void ckpt_cuda_advance(ckpt_cuda* cuda);

/* Hands over what has been drained since the last call, and ends each snapshot of which everything
 * has (ckpt_snapshot_end). Never waits for the device. *open, if not NULL, is the number of
 * snapshots that are still being staged. A snapshot that has failed by itself is no error here; one
 * that cannot be ended, because a piece was forgotten, is, and is aborted. After a failure of the
 * device every snapshot that was being staged has been aborted. */
CKPT_API ckpt_status ckpt_cuda_poll(ckpt_cuda* cuda, size_t* open);
/* The same, and waits at most timeout_ms until none is left; CKPT_E_DEADLINE_EXCEEDED if one is. */
CKPT_API ckpt_status ckpt_cuda_drain(ckpt_cuda* cuda, uint32_t timeout_ms);

typedef struct ckpt_cuda_destination {
  uint32_t unit;
  uint64_t offset; /* in the unit */
  void* data;      /* device memory; best aligned to 16 bytes */
  uint64_t length;
} ckpt_cuda_destination;

/* ckpt_restore_read into device memory: the same views, fallbacks, answers and errors. Returns when
 * every byte is there and has been checked on the device, so that any stream may read them; what
 * was queued on `stream` (NULL: the default stream) before the call is done before the first byte
 * is written. Destinations must not overlap each other; they are memory as of ckpt_cuda_stage's
 * pieces. Takes up to three slabs of device memory, and twice as much while a restore has larger
 * windows than those before; keeps three at most, and its queues, for the next restore
 * (ckpt_cuda_trim). Snapshots may be staged meanwhile.
 * After an error the destinations' bytes are undefined. If the error is the device's own, or that
 * it has not moved for the timeout of `options`, the device may still write to them until
 * ckpt_cuda_close; until its work has ended, further restores fail with CKPT_E_UNAVAILABLE. */
CKPT_API ckpt_status ckpt_cuda_restore(ckpt_cuda* cuda, const ckpt_restore_options* options,
                                       const ckpt_cuda_destination* destinations, size_t count,
                                       ckpt_restored* restored, struct CUstream_st* stream);

/* Gives back the device memory that restores have left for the next one, which makes it anew. Waits
 * for all work of the device, as cudaFree does. CKPT_E_UNAVAILABLE while a restore that has failed
 * still uses the device. */
CKPT_API ckpt_status ckpt_cuda_trim(ckpt_cuda* cuda);

/* GPUDirect Storage. With `direct` of the restore's options, or CKPTD_CUFILE in the environment,
 * what lies on disk is read by cuFile from the daemon's files straight into device memory, and
 * checked and scattered there as ever; what a device cannot read, or does not match, the daemon
 * reads, with all its fallbacks. What lies in the daemon's memory comes through the arena, which is
 * faster.
 *
 * off, the default: the arena only. No GPU has run the other way yet; where nvidia-fs is missing
 * cuFile may copy through host memory itself; and opening its driver takes time.
 *
 * auto: cuFile where it can; elsewhere the arena, and ckpt_cuda_last_restore says why.
 *
 * required: an error where cuFile, the file system or the daemon cannot. Single fragments that the
 * disk fails to give, or that are damaged, fall back all the same.
 *
 * cuFile is looked for as libcufile.so.0, or as CKPTD_CUFILE_LIBRARY says; opened at the first such
 * restore, closed by ckpt_cuda_close. It writes a cufile.log into the current directory unless its
 * own configuration says otherwise. The daemon hands files only to root and to the user it runs as,
 * since a segment holds state of every run. While such a restore runs, four threads read. */
typedef struct ckpt_cuda_restore_info {
  size_t struct_size;
  uint64_t bytes_arena;  /* through the arena; what came twice counts twice */
  uint64_t bytes_direct; /* by cuFile */
  const char* reason;    /* why cuFile was not used, or given up, though it was asked for; NULL: no
                            reason. Valid until the next restore */
} ckpt_cuda_restore_info;
/* How the bytes of the last ckpt_cuda_restore came, failed or not. */
CKPT_API ckpt_status ckpt_cuda_last_restore(const ckpt_cuda* cuda, ckpt_cuda_restore_info* info);

#ifdef __cplusplus
}
#endif
#endif /* CKPT_CKPT_CUDA_H_ */
/* NOLINTEND(readability-identifier-naming) */
