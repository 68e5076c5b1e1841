/* libckpt: many pieces of a snapshot in one call. C ABI; conventions as in ckpt.h.
 *
 * A state of thousands of tensors is thousands of pieces. One call for all of them spares a caller
 * in another language the cost of a call for each:
 *
 *   ckpt_write_options what = CKPT_INIT(ckpt_write_options);
 *   what.pieces = pieces;  what.piece_count = count;
 *   ckpt_snapshot_write_pieces(snapshot, &what); */
/* NOLINTBEGIN(readability-identifier-naming): C naming */
#ifndef CKPT_CKPT_PIECES_H_
#define CKPT_CKPT_PIECES_H_

#include <ckpt/ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes [offset, offset + length) of a unit, within one fragment of this rank. */
typedef struct ckpt_piece {
  uint32_t unit;
  uint64_t offset;
  uint64_t length;
  const void* data; /* host memory; may be changed on return */
} ckpt_piece;

typedef struct ckpt_write_options {
  size_t struct_size;
  const ckpt_piece* pieces; /* those of one fragment in ascending order */
  size_t piece_count;
} ckpt_write_options;

/* Like one ckpt_snapshot_write for each piece, in this order. After an error the pieces before the
 * failed one are written. Asks ckpt_liveness.interrupted before the first piece and every 50 ms:
 * CKPT_E_ABORTED. */
CKPT_API ckpt_status ckpt_snapshot_write_pieces(ckpt_snapshot* snapshot,
                                                const ckpt_write_options* options);

#ifdef __cplusplus
}
#endif
#endif /* CKPT_CKPT_PIECES_H_ */
/* NOLINTEND(readability-identifier-naming) */
