/* The units of a run's state, as ckpt_register_units of ckpt.h takes them. Plain data.
 * Conventions as in ckpt.h, which includes this file. */
/* NOLINTBEGIN(readability-identifier-naming): names as C has them */
#ifndef CKPT_CKPT_UNITS_H_
#define CKPT_CKPT_UNITS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ckpt_tensor {
  const char* name;  /* UTF-8 */
  const char* dtype; /* as in safetensors, all of its types: "F32", "BF16", "F8_E8M0", "F4", ... */
  const uint64_t* shape; /* in elements; a tensor has elements * bits / 8 bytes, maybe none */
  size_t rank;           /* dimensions */
  uint64_t offset;       /* bytes from the start of the unit */
} ckpt_tensor;

typedef struct ckpt_unit {
  const char* name; /* A-Z a-z 0-9 . _ - %, for example "layers.3.experts.17.weights" */
  int64_t layer;    /* -1: none */
  int64_t expert;   /* -1: none */
  const char* part; /* NULL, "weights" or "optimizer" */
  uint64_t bytes;
  const ckpt_tensor* tensors;
  size_t tensor_count;
} ckpt_unit;

/* How a unit is to lie on the disk. It changes no byte that is restored. */
typedef enum ckpt_codec {
  CKPT_CODEC_DEFAULT = 0, /* as the daemon's configuration says */
  CKPT_CODEC_NONE = 1,    /* as it is */
  CKPT_CODEC_ZSTD = 2,    /* compressed, where that makes it smaller */
  CKPT_CODEC_AUTO = 3,    /* refused: use NONE, or ZSTD on a disk slower than 1 GB/s */
  CKPT_CODEC_DELTA = 4    /* as ZSTD, or what changed since an earlier version if that is less */
} ckpt_codec;

/* Flags of a unit, to be combined with |. */
/* The unit's bytes may stay the same from save to save: a frozen parameter, a buffer. No alarm is
 * raised because they did. */
#define CKPT_UNIT_CONSTANT 1u

typedef struct ckpt_register_options {
  size_t struct_size;
  const char* metadata;
  const ckpt_codec* codecs; /* one for each unit; NULL: what the last registration said */
  uint32_t timeout_ms;
  const uint32_t* flags; /* one for each unit; NULL: what the last registration said, or none */
} ckpt_register_options;

#ifdef __cplusplus
}
#endif
#endif /* CKPT_CKPT_UNITS_H_ */
/* NOLINTEND(readability-identifier-naming) */
