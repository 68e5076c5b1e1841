/* libckpt: units that a run gets after its first registration. C ABI; conventions as in ckpt.h.
 *
 * A trainer that adds an adapter or experts grows its run: the units get numbers behind those of
 * the registration, and belong to the run from the first snapshot with them that becomes durable.
 * Older views do not have them. If no such snapshot becomes durable, the run has not grown.
 *
 *   uint32_t numbers[2];
 *   ckpt_grow_options growth = CKPT_INIT(ckpt_grow_options);
 *   growth.units = adapters;  growth.count = 2;  growth.numbers = numbers;
 *   ckpt_grow(session, &growth);               after ckpt_join, on every rank alike
 *   options.units = ...;                       base units and numbers[0], numbers[1]
 *   ckpt_snapshot_begin(session, &options, &snapshot);
 *
 * Call ckpt_grow after each ckpt_join with all units that the state has beyond the registration,
 * also with those that the run has already: the numbers of the others may change with the epoch.
 * Another call replaces the units that neither the run has nor a snapshot carries. */
/* NOLINTBEGIN(readability-identifier-naming): C naming */
#ifndef CKPT_CKPT_GROW_H_
#define CKPT_CKPT_GROW_H_

#include <ckpt/ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ckpt_grow_options {
  size_t struct_size;
  const ckpt_unit* units; /* names are those of no other unit */
  size_t count;
  const ckpt_codec* codecs; /* one for each unit; NULL: CKPT_CODEC_DEFAULT */
  const uint32_t* flags;    /* one for each unit; NULL: none */
  uint32_t* numbers;        /* receives the number of each unit, for fragments and ranges */
} ckpt_grow_options;

/* Adds units to the run, or finds their numbers if the run has them. Asks no daemon: the next
 * snapshot with units that the run lacks tells it. Until a snapshot with all of them is durable, a
 * snapshot holds all of them or none; one that holds a part waits for an earlier one with all.
 *
 * CKPT_E_FAILED_PRECONDITION: the session is in no epoch; or, with CKPT_DETAIL_UNITS_DIFFER, the
 * run has a unit of this name with another dtype, shape, size or attribute, on this lineage or
 * another one: a unit never changes in a run. ckpt_snapshot_begin fails with
 * CKPT_E_VERSION_MISMATCH if the daemon is older than growth, and with CKPT_E_INVALID_ARGUMENT,
 * naming rank and unit, if the ranks grow the run differently. */
CKPT_API ckpt_status ckpt_grow(ckpt_session* session, const ckpt_grow_options* options);

#ifdef __cplusplus
}
#endif
#endif /* CKPT_CKPT_GROW_H_ */
/* NOLINTEND(readability-identifier-naming) */
