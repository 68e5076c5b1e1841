// Every bound of the daemon, with its reason. Nothing in ckptd grows without one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "formats/arena.h"
#include "formats/blob.h"
#include "formats/wire/frame.h"
#include "formats/wire/unpacked.h"

namespace ckptd::limits {

// One node's trainers, a few tools, and room for reconnects while old sockets die.
inline constexpr size_t kSessionsMax = 256;
// Limit per user, so that one user never locks out the others. Root and the daemon's own user have
// none, and the last few sessions are reserved for them: they can always diagnose and repair.
inline constexpr size_t kSessionsPerUserMax = kSessionsMax / 4 * 3;
inline constexpr size_t kSessionsReserved = 8;
// Rate limit for log lines that a client can trigger.
inline constexpr size_t kWarningsPerPeriodMax = 8;
inline constexpr std::chrono::milliseconds kWarningsPeriod{10'000};
// Ranks of one group. A node has at most 16 accelerators today; tests use CPU ranks by the dozen.
inline constexpr uint32_t kGroupSizeMax = 4096;
// DeepSeek-V3 has 58 MoE layers x 256 experts x 2 parts ~ 30,000 units.
inline constexpr size_t kUnitsPerRunMax = 1u << 20;
static_assert(kUnitsPerRunMax < ckpt::kFirstBlob && kGroupSizeMax <= ckpt::kBlobRanksMax);
inline constexpr size_t kFragmentsPerSlabMax = 1u << 16;
// Per snapshot, as declared, as sealed and as encoded: 40 bytes each in its commit record, 56 if
// encoded, 96 with a base. The record must stay far from the 2 GiB of a FlatBuffer. 30,000 units
// cut over 64 ranks are 2 million fragments.
inline constexpr size_t kFragmentsPerSnapshotMax = 1u << 22;
// Slabs that a snapshot seals, plus shared extents: each is a table in its commit record, and a
// journal with a larger record would be unreadable.
inline constexpr size_t kExtentsPerSnapshotMax = (1u << 19) - (1u << 16) - 4096;
// Open at once per run: the one being filled, the one being written, one waiting.
inline constexpr size_t kSnapshotsOpenPerRunMax = 4;
// Interval of health checks. Trainers that wait this long while the disk writes count as waiting
// for the disk. A snapshot that found the disk full, and was not retried for this long, does not
// keep the daemon from being ready.
inline constexpr std::chrono::milliseconds kHealthPeriod{500};
inline constexpr std::chrono::milliseconds kDiskSlowAfter{2'000};
inline constexpr std::chrono::minutes kShortageRemembered{15};
// Runs in the metrics and in `status`, and in /readyz: the most recently changed ones.
inline constexpr size_t kRunsInMetricsMax = 100;
inline constexpr size_t kRunsInReadyzMax = 16;
// Longest part of a snapshot's time that a client may report; a longer one counts as this.
inline constexpr std::chrono::hours kClientTimingMax{1};
// Reasons of failed snapshots, kept for late members. A group of any size needs a few.
inline constexpr size_t kFailedSnapshotsRemembered = 64;
// Bytes queued towards one slow client before it is disconnected.
inline constexpr size_t kSendQueueBytesMax = 64u << 20;
// Rendezvous: collectives libraries exchange addresses, some per pair of ranks.
inline constexpr size_t kKvKeyBytesMax = 1024;
inline constexpr size_t kKvKeysPerEpochMax = 1u << 16;
inline constexpr size_t kKvValueBytesMax = 1u << 20;
// Keys and values together, including awaited keys.
inline constexpr size_t kKvBytesPerEpochMax = 64u << 20;
inline constexpr size_t kPendingRequestsPerSessionMax = 1024;
inline constexpr size_t kRestoresPerSessionMax = 4;
// Views that readers protect from removal, each while its reader makes progress: an export needs
// one, a diff two. One user can protect only this many commits from pruning; the last few holds are
// reserved for root and the daemon's own user.
inline constexpr size_t kHoldsPerSessionMax = 16;
inline constexpr size_t kHoldsPerUserMax = 256;
inline constexpr size_t kHoldsMax = 1024;
inline constexpr size_t kHoldsReserved = 64;
inline constexpr std::chrono::milliseconds kHoldLease{60'000};
// Ranges of one restore: the data about them in one message fits into a frame (asserted below).
inline constexpr size_t kWantsPerRestoreMax = 1u << 17;
// Why a unit comes from another source: one such text per unit and message, at most
// kNoteTextsBytesMax in total; other ranges get a reference of at most kNoteReferenceBytesMax.
inline constexpr size_t kNoteBytesMax = 1024;
inline constexpr size_t kNoteTextsBytesMax = 4u << 20;
inline constexpr size_t kNoteReferenceBytesMax = 64;
// Log lines per restore about units that fell back.
inline constexpr size_t kRestoreWarningsMax = 16;
// Documents of answers; the rest of the frame is small. Longer lists come in pages.
inline constexpr size_t kQueryReplyBytesMax = ckpt::wire::kFramePayloadBytesMax - (1u << 20);
// One page, or the whole document if the client requests no pages; without the few words around a
// page. A larger row is a page of its own.
inline constexpr size_t kQueryPageBytesMax = kQueryReplyBytesMax - (64u << 10);
// Reads of the whole store compete with snapshots for the disk.
inline constexpr size_t kVerifiesMax = 2;
// Kept in the journal and sent with every listing of runs.
inline constexpr size_t kMetadataBytesMax = 1u << 20;
inline constexpr size_t kMetricsPerSnapshotMax = 256;
inline constexpr size_t kMetricNameBytesMax = 128;
// Begins that wait for the end of one of the run's open snapshots: one per member and step.
inline constexpr size_t kBeginsWaitingPerRunMax = 2 * kGroupSizeMax;
// All waiting begins together. A begin of a rank with 100,000 fragments takes 3 MiB.
inline constexpr size_t kBeginsWaitingBytesMax = 256u << 20;

inline constexpr size_t kClientNameBytesMax = 256;
// Why a trainer aborted a snapshot, or could not read a fragment itself: a sentence.
inline constexpr size_t kReasonBytesMax = 256;
// Any message of the daemon. A failure may name each rank of a group; users read a screenful.
inline constexpr size_t kMessageBytesMax = 4096;
// A query is a word and a few names.
inline constexpr size_t kQueryVerbBytesMax = 64;
inline constexpr size_t kQueryArgsBytesMax = 64u << 10;

// Disk queue: at 4 MiB a piece, 32 in flight saturate an NVMe device; more only adds latency.
// Startup measures whether another size is faster (io/io_shape.h).
inline constexpr unsigned kRingEntries = 256;
inline constexpr size_t kWritePieceBytes = 4u << 20;
inline constexpr unsigned kWriteDepth = 32;
inline constexpr uint64_t kSegmentBytesDefault = 1ull << 30;

// Allocated for the journal ahead of need, renewed when half is used: records of 200,000 fragments.
// A disk filled by others then still takes commits in preallocated segments. Below the minimum no
// new snapshot begins: a commit of a few thousand fragments would not fit.
inline constexpr uint64_t kJournalReserveBytes = 8u << 20;
inline constexpr uint64_t kJournalReserveMin = 256u << 10;

// Codecs: minimum length of an encoded piece at a change of the element size; minimum length of a
// piece to encode at all. A slab is encoded in steps of this size, 10 to 20 ms each, so that other
// work gets its turn on the executor.
inline constexpr uint64_t kEncodedPieceBytesMin = 64u << 10;
inline constexpr uint64_t kEncodedBytesMin = 1u << 10;
inline constexpr uint64_t kEncodeStepBytes = 4u << 20;
// Users with rights on another user's run: kept in memory, and listed in one answer.
inline constexpr size_t kGrantsPerRunMax = 1024;
// The warm pool has at most this many pieces, each a descriptor and two mappings. Memory is faulted
// in by this step, some 30 ms of an executor thread with small pages. An arena may be smaller than
// its piece by at most the trim limit: freeing the rest takes the loop some 10 ms.
inline constexpr size_t kWarmPoolPiecesMax = 64;
inline constexpr uint64_t kWarmPoolStepBytes = 32u << 20;
inline constexpr uint64_t kWarmPoolTrimBytesMax = 64u << 20;
// Pause from startup to the first fill: living trainers return with their memory first. Also the
// pause before a retry when no piece could be added, and between checks whether the machine needs
// the memory.
inline constexpr std::chrono::milliseconds kWarmPoolPause{1000};
// Dedup: minimum stretch of unchanged bytes, in a slab and in the reads to compare it; for less, a
// comparison costs the disk more than it saves. Limit of versions looked up per slab, on the loop;
// the rest of the slab is written.
inline constexpr uint64_t kDedupBytesMin = 64u << 10;
inline constexpr size_t kDedupLookupsPerSlabMax = 512;
// Slabs compared with the disk at once, reads per slab, maximum size of a read and of gaps in it:
// enough to keep a disk busy. A job that waited for the maximum is written uncompared, because the
// disk has more important work.
inline constexpr size_t kComparedSlabsMax = 4;
inline constexpr size_t kComparedReadsPerSlab = 2;
inline constexpr uint64_t kComparedReadBytes = 4u << 20;
inline constexpr uint64_t kComparedGapBytes = 128u << 10;
inline constexpr std::chrono::milliseconds kCompareWaitMax{2'000};
// Slabs encoded at once, and the daemon's memory for encoded bytes until they are written; a single
// slab may be larger.
inline constexpr size_t kEncodesMax = 4;
inline constexpr uint64_t kEncodeBytesMax = 256u << 20;
// The fastest level of zstd. The gain on floats is the entropy of their planes, at any level.
inline constexpr int kZstdLevel = 1;
// Codec `delta`: a piece becomes a delta if that takes less than its base by this fraction; a
// sample of this size from its middle is tried first. After this many deltas in a row the
// base is renewed: a more distant base saves less, and one bad block then destroys more
// versions.
inline constexpr uint64_t kDeltaGain = 8;
inline constexpr uint64_t kDeltaSampleBytes = 64u << 10;
inline constexpr uint32_t kDeltasPerBaseMax = 8;
// The disk's rate is measured over stretches with pending writes. Minimum bytes of a stretch (a
// smaller one counts only if it was faster); a stretch without an end is counted at the maximum.
inline constexpr uint64_t kRateStretchBytesMin = 4u << 20;
inline constexpr uint64_t kRateStretchBytesMax = 64u << 20;
// Encoded bytes of a window that are read from disk: at this size the window ends.
inline constexpr uint64_t kEncodedWindowBytesMax = 16u << 20;

// Restores: reads in flight per job, at most kWritePieceBytes each; open segment files (well
// below the usual 1024 descriptors); pieces per window, so that one message about them stays
// small.
inline constexpr size_t kRestoreReadsInFlightMax = 16;
inline constexpr size_t kSegmentFilesOpenMax = 256;
inline constexpr size_t kPiecesPerWindowMax = 1u << 16;
// Windows that a client reads from the segments itself: as many as its device processes at once,
// plus one in transit.
inline constexpr size_t kLocatedWindowsMax = 4;
// Verify: buffers of one job, and errors in one report (a megabyte or two of JSON).
inline constexpr size_t kVerifyPieceBytes = 4u << 20;
inline constexpr size_t kVerifyPiecesInFlightMax = 4;
inline constexpr size_t kVerifyErrorsMax = 10'000;

// Commits that one query examines because they may share damaged bytes.
inline constexpr size_t kDamageHoldersMax = 10'000;

// Scrub: commits waiting to be read back, and recorded damaged units with a sentence each; the rest
// is left to the next pass, or only counted. Interval of saving its position, and minimum free disk
// space for that.
inline constexpr size_t kScrubNewCommitsMax = 4096;
inline constexpr size_t kScrubDamagesMax = 256;
// Log lines about damage per segment file, in a start or in a pass of scrub; then a count.
inline constexpr uint64_t kDamageLinesMax = 8;
inline constexpr std::chrono::milliseconds kScrubSaveEvery{1'000};
inline constexpr uint64_t kScrubSaveSpaceMin = 64u << 20;
// Minimum rate: below it a single piece would take too long. While others use the disk, scrub reads
// one piece per interval, so that it finishes even on a disk that is always busy.
inline constexpr uint64_t kScrubRateMin = 1u << 20;
inline constexpr uint64_t kScrubRateDefault = 64u << 20;
inline constexpr std::chrono::milliseconds kScrubYieldMax{10'000};
// A commit is read back when no snapshot was written for this long. If snapshots follow more
// closely, reading each would cost trainers as much as its write: then one per interval.
inline constexpr std::chrono::milliseconds kScrubNewAfter{2'000};
inline constexpr std::chrono::milliseconds kScrubNewEvery{10'000};
// A disk loses a sector in years; one pass per week finds it while an older copy still exists.
inline constexpr std::chrono::milliseconds kScrubIntervalDefault{7 * 24 * 3'600'000};

// Gc runs beside all other work: journal records per round, and punches in
// flight.
inline constexpr size_t kGcTasksPerRoundMax = 64;
// Records of a backlog that are scanned per loop turn, before the first round: some 10 ms.
inline constexpr size_t kGcRecordsPerTurnMax = 1024;
inline constexpr size_t kPunchesInFlightMax = 16;
// Changes of tags, pins and rules, and prunes: executed one after the other.
inline constexpr size_t kAdministrationsWaitingMax = 1024;

// Bytes read from one connection before other connections get their turn.
inline constexpr size_t kReadBytesPerTurn = 256u << 10;
// Descriptors that clients pass (server/quarantine.h). Threads that receive and close them,
// in total and per user; a thread is idle unless a client stalls it. Descriptors held at a
// time.
inline constexpr size_t kQuarantineThreadsMax = 32;
inline constexpr size_t kQuarantineThreadsPerUser = 2;
inline constexpr size_t kQuarantineJobsMax = 1024;
// Each class of users gets this fraction: so many classes together reach the limit.
inline constexpr size_t kQuarantineClassesAtOnce = 4;
// Interval of log lines while the limit is reached.
inline constexpr std::chrono::milliseconds kQuarantineFullReports{60'000};
// A user with this many held descriptors, the oldest for this long, is refused. A startup at which
// all ranks of a node hand their arenas back takes milliseconds.
inline constexpr size_t kQuarantineJobsPerUser = 8;
inline constexpr std::chrono::milliseconds kQuarantineStuckAfter{2'000};
// How long an exit waits for those threads.
inline constexpr std::chrono::milliseconds kQuarantinePatience{200};
// Handing arenas back: lifetime of a ticket, and time limit of a connection that hands an arena
// back.
inline constexpr std::chrono::milliseconds kHandBackTicketLife{60'000};
inline constexpr std::chrono::milliseconds kHandBackDeadline{5'000};
// Its message has a few dozen bytes.
inline constexpr size_t kHandBackBytesMax = 4'096;
// After the kernel refused a client of protocol version 2, because it passed its arena with Hello:
// how long the main socket allows descriptors. The client retries within 100 ms.
inline constexpr std::chrono::milliseconds kRightsWindow{5'000};

// Loop turns for reading the last messages of a dead process: a socket's buffer holds less than one
// turn, but children of the process may continue to send.
inline constexpr size_t kLastReadsMax = 64;
// Time for applying records to the catalog per loop turn: less than adding or removing one large
// commit takes, so the loop is never blocked for longer than that.
inline constexpr std::chrono::milliseconds kApplyTurn{10};
// Retry of a catalog that cannot be written: after the minimum, then with doubled delays up to the
// maximum. Each try reads the catalog's log, and each failure is logged.
inline constexpr std::chrono::milliseconds kCatalogRetryMin{100};
inline constexpr std::chrono::milliseconds kCatalogRetryMax{30'000};
// A catalog kept in memory because of a full disk returns to disk once this much space is free;
// interval of the check.
inline constexpr std::chrono::milliseconds kCatalogReturnEvery{10'000};
inline constexpr uint64_t kCatalogReturnSpaceMin = 64ull << 20;

// Descriptors from a service manager: as many as its store holds (ckptd.service:
// FileDescriptorStoreMax), two per arena of living and dead sessions, plus sockets. A service
// manager that does not read notifications blocks the loop for at most the deadline.
inline constexpr size_t kInheritedFdsMax = 4096 + 64;
inline constexpr std::chrono::seconds kNotifyDeadline{1};

inline constexpr std::chrono::milliseconds kHelloDeadline{5'000};
// How long a closing connection waits until the client has read its last answer.
inline constexpr std::chrono::milliseconds kCloseDeadline{5'000};
// HTTP: probes and scrapers of one node; a request is a line and some headers, sent at once.
inline constexpr size_t kHttpConnectionsMax = 32;
inline constexpr size_t kHttpRequestBytesMax = 16u << 10;
inline constexpr std::chrono::milliseconds kHttpDeadline{2'000};
inline constexpr std::chrono::milliseconds kHttpRetry{100};  // after a failed accept
inline constexpr std::chrono::milliseconds kSnapshotDeadlineDefault{600'000};
// Time for survivors of an elastic group's epoch to ask to continue, unless their join set another:
// a step and a copy of state take seconds. Maximum of that setting: one hanging member holds up all
// others for this long.
inline constexpr std::chrono::milliseconds kSurvivorGrace{10'000};
inline constexpr std::chrono::milliseconds kSurvivorGraceMax{120'000};
// How long a drain waits for snapshots that trainers still fill; then their slabs are left to the
// next daemon.
inline constexpr std::chrono::milliseconds kDrainDeadline{10'000};
// How long members of the last epoch may take to rejoin after a daemon restart.
inline constexpr std::chrono::milliseconds kReopenDeadline{30'000};

static_assert(kEncodedWindowBytesMax >= 2 * kWritePieceBytes);
static_assert(kSessionsPerUserMax + kSessionsReserved < kSessionsMax);
static_assert(kSegmentBytesDefault >= 2 * ckpt::kSlabBytesDefault);
// A want in a RestoreOpened or RestoreWindow: its version with table overhead (64), two pieces (a
// range may begin in one slice and end in another), its note.
static_assert(kWantsPerRestoreMax * (64 + 2 * 40 + kNoteReferenceBytesMax) + kNoteTextsBytesMax <=
              ckpt::wire::kFramePayloadBytesMax - (1u << 20));
// Located: a fragment and a piece of it take 72 bytes.
static_assert(kPiecesPerWindowMax * 72 + kWantsPerRestoreMax * (64 + kNoteReferenceBytesMax) +
                  kNoteTextsBytesMax <=
              ckpt::wire::kFramePayloadBytesMax - (1u << 20));
static_assert(kFragmentsPerSnapshotMax >= kFragmentsPerSlabMax);
static_assert(2 * kExtentsPerSnapshotMax + kMetricsPerSnapshotMax + ckpt::kBlobsPerCommitMax + 16 <=
              ckpt::wire::kTablesMax);
static_assert(kSendQueueBytesMax >= 2 * ckpt::wire::kFramePayloadBytesMax);

}  // namespace ckptd::limits
