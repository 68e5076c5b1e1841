/* Whether the daemon answers, and calls that shall not wait for one that does not. Conventions as
 * in ckpt.h. */
/* NOLINTBEGIN(readability-identifier-naming): names as C has them */
#ifndef CKPT_CKPT_LIVENESS_H_
#define CKPT_CKPT_LIVENESS_H_

#include <ckpt/ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For ckpt_open_options.liveness. */
typedef struct ckpt_liveness {
  size_t struct_size;
  /* Nonzero: while the session is polled or waits, it asks the daemon this often, in milliseconds,
   * whether it answers; ckpt_silence_ms tells. 0: no heartbeats. */
  uint32_t heartbeat_ms;
  /* May be NULL. A call of the session that waits asks this every 50 ms; nonzero ends the wait, and
   * the call returns CKPT_E_ABORTED. Runs on the thread of that call, must not block, and may call
   * nothing of the session but ckpt_silence_ms and ckpt_fd. */
  int (*interrupted)(void* context);
  void* interrupted_context;
  /* Called by ckpt_open when the daemon has had no room for the session's arena for a second, and
   * later when the reason changes, with the daemon's sentence. ckpt_open goes on waiting until its
   * timeout: room comes when other sessions end. NULL: none. */
  void (*waiting)(void* waiting_context, const char* why);
  void* waiting_context;
} ckpt_liveness;

/* Milliseconds without an answer of the daemon: since the connection was lost, or since a heartbeat
 * that it has not answered. 0 while it answers. As of the last call that looked at the socket: poll
 * first. Tells a daemon that hangs, whose socket stays open, from one that is slow to make a
 * snapshot durable. */
CKPT_API uint64_t ckpt_silence_ms(const ckpt_session* session);

#ifdef __cplusplus
}
#endif
#endif /* CKPT_CKPT_LIVENESS_H_ */
/* NOLINTEND(readability-identifier-naming) */
