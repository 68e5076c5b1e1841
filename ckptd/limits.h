// Every bound of the daemon, with its reason. Nothing in ckptd grows without one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "formats/arena.h"
#include "formats/wire/frame.h"
#include "formats/wire/unpacked.h"

namespace ckptd::limits {

// One node's trainers, a few tools, and room for reconnects while old sockets die.
inline constexpr size_t kSessionsMax = 256;
// Of one user, who can never keep the others out; far more than a node's ranks and tools. Root and
// the daemon's own user have no such bound, and the last few to themselves: what is wrong can be
// asked, and mended, whatever others do.
inline constexpr size_t kSessionsPerUserMax = kSessionsMax / 4 * 3;
inline constexpr size_t kSessionsReserved = 8;
// Rate limit for log lines that a client can trigger.
inline constexpr size_t kWarningsPerPeriodMax = 8;
inline constexpr std::chrono::milliseconds kWarningsPeriod{10'000};
// Ranks of one group. A node has at most 16 accelerators today; tests use CPU ranks by the dozen.
inline constexpr uint32_t kGroupSizeMax = 4096;
// DeepSeek-V3 has 58 MoE layers x 256 experts x 2 parts ~ 30,000 units.
inline constexpr size_t kUnitsPerRunMax = 1u << 20;
inline constexpr size_t kFragmentsPerSlabMax = 1u << 16;
// Of one snapshot, as declared, as sealed and as encoded: 40 bytes each in its commit record, 56 if
// encoded, 96 with a base, which must stay far from the 2 GiB of a FlatBuffer. 30,000 units cut
// over 64 ranks are 2 million.
inline constexpr size_t kFragmentsPerSnapshotMax = 1u << 22;
// Slabs that a snapshot seals, and extents of earlier ones that it refers to: each is a table in
// its commit record, and a journal with a record of too many could not be read any more.
inline constexpr size_t kExtentsPerSnapshotMax = (1u << 19) - 1024;
// Open at once per run: the one being filled, the one being written, one waiting.
inline constexpr size_t kSnapshotsOpenPerRunMax = 4;
// How often the daemon looks at its own health. Trainers that have waited so long while the disk
// writes wait for the disk. A snapshot that the disk had no room for, and that nobody has asked for
// again in so long a time, does not keep the daemon from being ready.
inline constexpr std::chrono::milliseconds kHealthPeriod{500};
inline constexpr std::chrono::milliseconds kDiskSlowAfter{2'000};
inline constexpr std::chrono::minutes kShortageRemembered{15};
// Runs whose progress is in the metrics and in `status`, and in /readyz: those that changed last.
inline constexpr size_t kRunsInMetricsMax = 100;
inline constexpr size_t kRunsInReadyzMax = 16;
// Why snapshots failed, kept for members that come late. A group of any size needs a few.
inline constexpr size_t kFailedSnapshotsRemembered = 64;
// Bytes queued towards one slow client before it is disconnected.
inline constexpr size_t kSendQueueBytesMax = 64u << 20;
// Rendezvous: what collectives libraries exchange is addresses, some per pair of ranks.
inline constexpr size_t kKvKeyBytesMax = 1024;
inline constexpr size_t kKvKeysPerEpochMax = 1u << 16;
inline constexpr size_t kKvValueBytesMax = 1u << 20;
// Keys and values together, keys that are waited for included.
inline constexpr size_t kKvBytesPerEpochMax = 64u << 20;
inline constexpr size_t kPendingRequestsPerSessionMax = 1024;
inline constexpr size_t kRestoresPerSessionMax = 4;
// Views that readers keep from being removed, each as long as its reader makes progress: an export
// needs one, a diff two. A user can keep so many commits from being pruned; root and the daemon's
// own user have the last few to themselves.
inline constexpr size_t kHoldsPerSessionMax = 16;
inline constexpr size_t kHoldsPerUserMax = 256;
inline constexpr size_t kHoldsMax = 1024;
inline constexpr size_t kHoldsReserved = 64;
inline constexpr std::chrono::milliseconds kHoldLease{60'000};
// Ranges of one restore: everything that one message says of each of them fits into a frame (see
// the assertion below).
inline constexpr size_t kWantsPerRestoreMax = 1u << 17;
// Why a unit comes from elsewhere: one such text per unit and message, as long as they add up to no
// more than kNoteTextsBytesMax; other ranges get a short reference of kNoteReferenceBytesMax.
inline constexpr size_t kNoteBytesMax = 1024;
inline constexpr size_t kNoteTextsBytesMax = 4u << 20;
inline constexpr size_t kNoteReferenceBytesMax = 64;
// Log lines about units that fell back, of one restore.
inline constexpr size_t kRestoreWarningsMax = 16;
// Documents of answers; the rest of the frame is small. Lists that may be longer come in pages.
inline constexpr size_t kQueryReplyBytesMax = ckpt::wire::kFramePayloadBytesMax - (1u << 20);
// One page, or the whole document where no pages are asked for; without the few words around a
// page. A row that is larger than that comes alone.
inline constexpr size_t kQueryPageBytesMax = kQueryReplyBytesMax - (64u << 10);
// Reads of the whole store compete with snapshots for the disk.
inline constexpr size_t kVerifiesMax = 2;
// Kept in the journal and handed out with every listing of runs.
inline constexpr size_t kMetadataBytesMax = 1u << 20;
inline constexpr size_t kMetricsPerSnapshotMax = 256;
inline constexpr size_t kMetricNameBytesMax = 128;
// Begins that wait until one of the run's open snapshots is over: one per member and step.
inline constexpr size_t kBeginsWaitingPerRunMax = 2 * kGroupSizeMax;
// All waiting begins together. One of a rank with 100,000 fragments takes 3 MiB.
inline constexpr size_t kBeginsWaitingBytesMax = 256u << 20;

inline constexpr size_t kClientNameBytesMax = 256;
// Why a trainer gave a snapshot up, or could not read a fragment itself: a sentence.
inline constexpr size_t kReasonBytesMax = 256;
// Any message of the daemon's own. A failure may name each rank of a group; a screenful is read.
inline constexpr size_t kMessageBytesMax = 4096;
// Questions are a word and a few names.
inline constexpr size_t kQueryVerbBytesMax = 64;
inline constexpr size_t kQueryArgsBytesMax = 64u << 10;

// Disk queue: at 4 MiB a piece, 32 in flight saturate an NVMe device; more only adds latency.
// Where writes of another size do better, a start finds out (io/io_shape.h).
inline constexpr unsigned kRingEntries = 256;
inline constexpr size_t kWritePieceBytes = 4u << 20;
inline constexpr unsigned kWriteDepth = 32;
inline constexpr uint64_t kSegmentBytesDefault = 1ull << 30;

// Taken for the journal ahead of need, renewed when half is used: records of 200,000 fragments. A
// disk that others fill still takes commits into space that segments hold. Below the least nothing
// more is begun: a commit of a few thousand fragments would not fit.
inline constexpr uint64_t kJournalReserveBytes = 8u << 20;
inline constexpr uint64_t kJournalReserveMin = 256u << 10;

// Codecs: encoded pieces of a slab are not cut shorter where the size of elements changes, and what
// is shorter than the other is left as it is. A slab is encoded in steps of so many bytes, so that
// others have their turn on the executor: 10 to 20 ms each.
inline constexpr uint64_t kEncodedPieceBytesMin = 64u << 10;
inline constexpr uint64_t kEncodedBytesMin = 1u << 10;
inline constexpr uint64_t kEncodeStepBytes = 4u << 20;
// Users of a run that is not theirs: held in memory, and listed in one answer.
inline constexpr size_t kGrantsPerRunMax = 1024;
// The pool of warm memory has at most so many pieces, each a descriptor and two mappings. It is
// faulted in so much at a time, some 30 ms of an executor thread. An arena may be so much smaller
// than a piece of it: giving back the rest takes the loop some 10 ms.
inline constexpr size_t kWarmPoolPiecesMax = 64;
inline constexpr uint64_t kWarmPoolStepBytes = 32u << 20;
inline constexpr uint64_t kWarmPoolTrimBytesMax = 64u << 20;
// From the daemon's start until it is begun: trainers that live come back with their memory. From
// when nothing could be added to it until that is tried again, and until it is looked whether the
// machine needs memory more.
inline constexpr std::chrono::milliseconds kWarmPoolPause{1000};
// What did not change is not written again, in stretches of at least so many bytes, of a slab and
// of what is read to compare it: for less the disk is asked for more than it is spared. So many
// versions at most are looked up for a slab, on the loop; the rest of it is written.
inline constexpr uint64_t kSameBytesMin = 64u << 10;
inline constexpr size_t kSameLookupsPerSlabMax = 512;
// Slabs that are compared at once with what the disk has, and the reads of each, of at most this
// size, with gaps of at most this size in them: enough to keep a disk busy. What has waited so long
// is written: the disk has more to do than to compare.
inline constexpr size_t kComparedSlabsMax = 4;
inline constexpr size_t kComparedReadsPerSlab = 2;
inline constexpr uint64_t kComparedReadBytes = 4u << 20;
inline constexpr uint64_t kComparedGapBytes = 128u << 10;
inline constexpr std::chrono::milliseconds kCompareWaitMax{2'000};
// Slabs that are encoded at once, and the daemon's memory for what has become of them until it is
// written; a single slab may be larger.
inline constexpr size_t kEncodesMax = 4;
inline constexpr uint64_t kEncodeBytesMax = 256u << 20;
// Of zstd: its fastest. What makes floats smaller is the entropy of their planes, at any level.
inline constexpr int kZstdLevel = 1;
// Codec `delta`: a piece is one where that takes less than its base does by this part of it, as so
// much out of its middle says before all of it is tried; and so often in a row, then the base is
// renewed: the further away it is the less a delta spares, and the more versions one bad block
// takes.
inline constexpr uint64_t kDeltaGain = 8;
inline constexpr uint64_t kDeltaSampleBytes = 64u << 10;
inline constexpr uint32_t kDeltasPerBaseMax = 8;
// The disk's rate is that of stretches in which it had something to write: of at least so much, or
// it could be faster; one that never ends counts every so many bytes.
inline constexpr uint64_t kRateStretchBytesMin = 4u << 20;
inline constexpr uint64_t kRateStretchBytesMax = 64u << 20;
// A window's encoded bytes on their way from the disk: with that the window ends.
inline constexpr uint64_t kEncodedWindowBytesMax = 16u << 20;

// Restores: reads in flight of one job, at most kWritePieceBytes each; segment files kept open
// (well below the usual 1024 descriptors); a window's pieces, so that one message about them stays
// small.
inline constexpr size_t kRestoreReadsInFlightMax = 16;
inline constexpr size_t kSegmentFilesOpenMax = 256;
inline constexpr size_t kPiecesPerWindowMax = 1u << 16;
// Windows that a client reads out of the segments itself: as many as its device works on at once,
// and one more on its way.
inline constexpr size_t kLocatedWindowsMax = 4;
// Verify: buffers of one job, and errors in one report (a megabyte or two of JSON).
inline constexpr size_t kVerifyPieceBytes = 4u << 20;
inline constexpr size_t kVerifyPiecesInFlightMax = 4;
inline constexpr size_t kVerifyErrorsMax = 10'000;

// Commits that one question looks at because they may share bytes that are known to be damaged.
inline constexpr size_t kDamageHoldersMax = 10'000;

// Scrub: commits that wait to be read back, and damaged units that are remembered, with a sentence
// each: what is beyond is left to the next pass, or only counted. It keeps where it stands so
// often, and not on a disk with less space than this.
inline constexpr size_t kScrubNewCommitsMax = 4096;
inline constexpr size_t kScrubDamagesMax = 256;
inline constexpr std::chrono::milliseconds kScrubSaveEvery{1'000};
inline constexpr uint64_t kScrubSaveSpaceMin = 64u << 20;
// Slower than that a piece would be waited for too long. While others use the disk it reads one
// piece in so much time, so that a disk that is always in use is read through all the same.
inline constexpr uint64_t kScrubRateMin = 1u << 20;
inline constexpr uint64_t kScrubRateDefault = 64u << 20;
inline constexpr std::chrono::milliseconds kScrubYieldMax{10'000};
// A commit is read back when no snapshot has been written for so long. Where they follow each other
// more closely reading each would cost the trainers as much as its write: then one in so much time.
inline constexpr std::chrono::milliseconds kScrubNewAfter{2'000};
inline constexpr std::chrono::milliseconds kScrubNewEvery{10'000};
// A disk loses a sector in years; a pass a week finds it while an older copy is still there.
inline constexpr std::chrono::milliseconds kScrubIntervalDefault{7 * 24 * 3'600'000};

// Dead space goes back beside everything else: so many journal records' of it in one round, so many
// stretches in the kernel at once.
inline constexpr size_t kGcTasksPerRoundMax = 64;
// Records of a backlog that are seen, before its first round, in one turn of the loop: some 10 ms.
inline constexpr size_t kGcRecordsPerTurnMax = 1024;
inline constexpr size_t kPunchesInFlightMax = 16;
// Changes of tags, pins and rules, and prunes: they are carried out one after the other.
inline constexpr size_t kAdministrationsWaitingMax = 1024;

// Read from one connection before the others have their turn.
inline constexpr size_t kReadBytesPerTurn = 256u << 10;
// Descriptors that clients pass (server/quarantine.h). Threads that receive and close them, in
// total and for one user; a thread is idle unless a client stalls it. Descriptors that are held at
// a time.
inline constexpr size_t kQuarantineThreadsMax = 32;
inline constexpr size_t kQuarantineThreadsPerUser = 2;
inline constexpr size_t kQuarantineJobsMax = 1024;
// One class of users gets its part of those, so that so many together reach the bound.
inline constexpr size_t kQuarantineClassesAtOnce = 4;
// How often the log says that the bound is reached, while it is.
inline constexpr std::chrono::milliseconds kQuarantineFullReports{60'000};
// A user with that many descriptors held, the oldest for that long, is refused. A start at which
// all ranks of a node hand their arenas back is over in milliseconds.
inline constexpr size_t kQuarantineJobsPerUser = 8;
inline constexpr std::chrono::milliseconds kQuarantineStuckAfter{2'000};
// How long an exit waits for those threads.
inline constexpr std::chrono::milliseconds kQuarantinePatience{200};
// Arenas on their way back: for how long a ticket is good, and how long one that connects to hand
// an arena back may take to do so.
inline constexpr std::chrono::milliseconds kHandBackTicketLife{60'000};
inline constexpr std::chrono::milliseconds kHandBackDeadline{5'000};
// Its message has some tens of bytes.
inline constexpr size_t kHandBackBytesMax = 4'096;
// After a client of protocol version 2 was refused by the kernel, because it passed its arena with
// Hello: how long descriptors are let in on the main socket. It tries again within 100 ms.
inline constexpr std::chrono::milliseconds kRightsWindow{5'000};

// What a dead process had sent is still read, this many turns long: a socket's buffer holds less
// than one, but children of the process may go on to send.
inline constexpr size_t kLastReadsMax = 64;
// Records are folded into the catalog for so long before the loop goes on to others: less than one
// large commit takes to be added or taken out, so the loop stands still for no longer than that.
inline constexpr std::chrono::milliseconds kApplyTurn{10};
// A catalog that cannot be written is tried again after this, then twice as long, up to the most:
// each try reads the catalog's log, and one to no avail is logged.
inline constexpr std::chrono::milliseconds kCatalogRetryMin{100};
inline constexpr std::chrono::milliseconds kCatalogRetryMax{30'000};
// A catalog that is kept in memory because the disk is full goes back to it once there is so much
// room; that is looked at so often.
inline constexpr std::chrono::milliseconds kCatalogReturnEvery{10'000};
inline constexpr uint64_t kCatalogReturnSpaceMin = 64ull << 20;

// From a service manager: as many as its store holds (ckptd.service: FileDescriptorStoreMax), two
// for each arena of sessions, some of them dead; and sockets. One that does not read what it is
// told holds up the loop for no longer than this.
inline constexpr size_t kInheritedFdsMax = 4096 + 64;
inline constexpr std::chrono::seconds kNotifyDeadline{1};

inline constexpr std::chrono::milliseconds kHelloDeadline{5'000};
// A connection that is to be closed once its last answer is read waits this long for that.
inline constexpr std::chrono::milliseconds kCloseDeadline{5'000};
// HTTP: probes and scrapers of one node; a request is a line and some headers, and comes at once.
inline constexpr size_t kHttpConnectionsMax = 32;
inline constexpr size_t kHttpRequestBytesMax = 16u << 10;
inline constexpr std::chrono::milliseconds kHttpDeadline{2'000};
inline constexpr std::chrono::milliseconds kHttpRetry{100};  // after an accept that failed
inline constexpr std::chrono::milliseconds kSnapshotDeadlineDefault{600'000};
// Survivors of an elastic group's epoch have this long to ask to go on, unless they said otherwise
// when they joined: a step and a copy of state take seconds. The most they can say: a member that
// hangs holds up all others for so long.
inline constexpr std::chrono::milliseconds kSurvivorGrace{10'000};
inline constexpr std::chrono::milliseconds kSurvivorGraceMax{120'000};
// A drain waits this long for snapshots that trainers still fill; then they are left to be handed
// to the next daemon.
inline constexpr std::chrono::milliseconds kDrainDeadline{10'000};
// How long members of the last epoch have to come back after a daemon restart.
inline constexpr std::chrono::milliseconds kReopenDeadline{30'000};

static_assert(kEncodedWindowBytesMax >= 2 * kWritePieceBytes);
static_assert(kSessionsPerUserMax + kSessionsReserved < kSessionsMax);
static_assert(kSegmentBytesDefault >= 2 * ckpt::kSlabBytesDefault);
// A want in a RestoreOpened or RestoreWindow: its version with the tables' bookkeeping (64), two
// pieces (a range may begin in one slice and end in another), its note.
static_assert(kWantsPerRestoreMax * (64 + 2 * 40 + kNoteReferenceBytesMax) + kNoteTextsBytesMax <=
              ckpt::wire::kFramePayloadBytesMax - (1u << 20));
// Located: a fragment and a piece of it take 72 bytes.
static_assert(kPiecesPerWindowMax * 72 + kWantsPerRestoreMax * (64 + kNoteReferenceBytesMax) +
                  kNoteTextsBytesMax <=
              ckpt::wire::kFramePayloadBytesMax - (1u << 20));
static_assert(kFragmentsPerSnapshotMax >= kFragmentsPerSlabMax);
static_assert(2 * kExtentsPerSnapshotMax + kMetricsPerSnapshotMax + 16 <= ckpt::wire::kTablesMax);
static_assert(kSendQueueBytesMax >= 2 * ckpt::wire::kFramePayloadBytesMax);

}  // namespace ckptd::limits
