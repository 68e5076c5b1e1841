#include "ckptd/restore/plan.h"

#include <algorithm>
#include <tuple>

#include "formats/base/checked.h"

namespace ckptd {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
using ckpt::UnitRange;

std::string unit_name(const RestoreOracle& oracle, ckpt::UnitId unit) {
  return oracle.unit_name ? oracle.unit_name(unit) : fmt::format("number {}", unit);
}

// Plans the fragments of the version that the range touches, and the wanted part of each. Returns a
// fragment that no source has; null: every fragment has a source.
const FragmentPlace* plan_want(size_t want, const UnitRange& range, const UnitVersion& version,
                               const RestoreOracle& oracle, std::vector<PlannedRead>& reads) {
  const uint64_t end = range.offset + range.length;
  // The first fragment that ends after the range begins.
  auto fragment = std::upper_bound(version.fragments.begin(), version.fragments.end(), range.offset,
                                   [](uint64_t offset, const FragmentPlace& place) {
                                     return offset < place.offset + place.length;
                                   });
  for (; fragment != version.fragments.end() && fragment->offset < end; ++fragment) {
    const uint64_t from = std::max(range.offset, fragment->offset);
    const uint64_t to = std::min(end, fragment->offset + fragment->length);
    if (from == to) continue;
    const auto place = oracle.places.first(version.snapshot, range.unit, *fragment);
    if (!place) return &*fragment;
    reads.push_back({want, {range.unit, from, to - from}, *place, version.snapshot, *fragment});
  }
  return nullptr;
}

std::string instead_note(const RestoreOracle& oracle, ckpt::UnitId unit, ckpt::Step step,
                         ckpt::Step instead_of, const std::string& reason) {
  return fmt::format("unit {}: step {} instead of {}: {}", unit_name(oracle, unit), step,
                     instead_of, reason);
}

// `version`: the step of the version that the view has, or would have.
ckpt::Error cannot_be_had(const RestoreRequest& request, const RestoreOracle& oracle,
                          ckpt::UnitId unit, ckpt::Step version, const std::string& reason) {
  const std::string older =
      version == request.point.step ? "" : fmt::format("its version is of step {}: ", version);
  return make_error(ErrorCode::kCorrupt, "run {} step {} unit {}: {}{}{}", oracle.run_name,
                    request.point.step, unit_name(oracle, unit), older, reason,
                    request.exact ? "" : "; the view has no older version of it");
}

// A missing version means "not found" only if the catalog could be read.
Status health_of(const RestoreOracle& oracle) { return oracle.health ? oracle.health() : Status(); }

struct ChosenVersion {
  UnitVersion version;
  std::string note;
};

// The view's version of the unit, or the version before it if the view's one was damaged.
Result<std::optional<ChosenVersion>> choose_version(const RestoreRequest& request,
                                                    const RestoreOracle& oracle,
                                                    ckpt::UnitId unit) {
  auto version = oracle.newest_version(unit, std::nullopt);
  const auto damaged = oracle.damaged_version ? oracle.damaged_version(unit) : std::nullopt;
  CKPT_TRY(health_of(oracle));
  if (damaged && (request.exact || !version)) {
    return cannot_be_had(request, oracle, unit, damaged->snapshot.step, damaged->reason);
  }
  if (!version) {
    return make_error(ErrorCode::kNotFound, "run {} step {} unit {}: no version in this view",
                      oracle.run_name, request.point.step, unit_name(oracle, unit));
  }
  std::string note;
  if (damaged) {
    note =
        instead_note(oracle, unit, version->snapshot.step, damaged->snapshot.step, damaged->reason);
  }
  return std::optional(ChosenVersion{std::move(*version), std::move(note)});
}

// The nearest source first, because it is the fastest and may evict fragments soon; every container
// in one ascending pass.
void sort_reads(std::vector<PlannedRead>& reads, const BySource<size_t>& rank) {
  const auto key = [&rank](const PlannedRead& read) {
    return std::tuple(rank[read.place.source], read.place.address, read.want, read.part.offset);
  };
  std::sort(reads.begin(), reads.end(),
            [&](const PlannedRead& a, const PlannedRead& b) { return key(a) < key(b); });
}

void count_bytes(RestorePlan& plan) {
  const PlannedRead* before = nullptr;
  for (const PlannedRead& read : plan.reads) {
    // Two wants of one fragment are adjacent, and cost one read.
    const bool again = before != nullptr && before->place == read.place &&
                       before->stored == read.stored && before->part.unit == read.part.unit;
    before = &read;
    if (!again) plan.bytes[read.place.source] += read.stored.length;
  }
}

// Blobs of the one commit that a request names, read from the catalog at the first question.
class RequestedBlobs {
 public:
  RequestedBlobs(const Catalog& catalog, const RestoreRequest& request)
      : catalog_(catalog), run_(request.run), point_(request.point) {}

  // Null: the commit has no such blob.
  const CommitBlob* find(ckpt::UnitId id) {
    read();
    const auto found = std::ranges::lower_bound(
        blobs_, id, {}, [](const CommitBlob& blob) { return blob.version.unit; });
    return found == blobs_.end() || found->version.unit != id ? nullptr : &*found;
  }
  // The commit, if it is damaged.
  const std::optional<DamagedVersion>& damaged() {
    read();
    return damaged_;
  }

 private:
  void read() {
    if (read_) return;
    blobs_ = catalog_.blobs(run_, point_);
    const auto commit = catalog_.commit(run_, point_.lineage, point_.step);
    if (commit && commit->damaged) damaged_ = DamagedVersion{commit->snapshot, commit->reason};
    read_ = catalog_.health().ok();  // else read again once the catalog works
  }

  const Catalog& catalog_;
  const ckpt::RunId run_;
  const ViewPoint point_;
  bool read_ = false;
  std::vector<CommitBlob> blobs_;
  std::optional<DamagedVersion> damaged_;
};

// Lets the oracle know blobs: only those of the named commit, and no older version.
void add_blobs(const Catalog& catalog, const RestoreRequest& request, RestoreOracle& oracle) {
  const bool any =
      std::ranges::any_of(request.wants, ckpt::is_blob, [](const UnitRange& r) { return r.unit; });
  if (!any) return;
  const auto blobs = std::make_shared<RequestedBlobs>(catalog, request);
  oracle.newest_version =
      [blobs, of_unit = oracle.newest_version](
          ckpt::UnitId unit,
          const std::optional<ckpt::SnapshotKey>& before) -> std::optional<UnitVersion> {
    if (!ckpt::is_blob(unit)) return of_unit(unit, before);
    const CommitBlob* blob = before || blobs->damaged() ? nullptr : blobs->find(unit);
    return blob == nullptr ? std::nullopt : std::optional(blob->version);
  };
  oracle.damaged_version = [blobs, of_unit = oracle.damaged_version](
                               ckpt::UnitId unit) -> std::optional<DamagedVersion> {
    return ckpt::is_blob(unit) ? blobs->damaged() : of_unit(unit);
  };
  oracle.unit_name = [blobs, of_unit = oracle.unit_name](ckpt::UnitId unit) {
    const CommitBlob* blob = ckpt::is_blob(unit) ? blobs->find(unit) : nullptr;
    return blob != nullptr ? blob->label() : of_unit(unit);
  };
}

}  // namespace

RestoreOracle catalog_oracle(const Catalog& catalog, const RestoreRequest& request,
                             PlaceOracle places) {
  RestoreOracle oracle;
  oracle.newest_version = [&catalog, run = request.run, point = request.point](
                              ckpt::UnitId unit, const std::optional<ckpt::SnapshotKey>& before) {
    return catalog.newest_version(run, unit, point, before);
  };
  oracle.damaged_version = [&catalog, run = request.run, point = request.point](ckpt::UnitId unit) {
    return catalog.damaged_version(run, unit, point);
  };
  oracle.places = std::move(places);
  oracle.health = [&catalog] { return catalog.health(); };
  const auto run = catalog.run(request.run);
  oracle.run_name = run.ok() ? run->name : fmt::format("number {}", request.run);
  const auto units = catalog.units(request.run);
  oracle.unit_name = [specs = units.ok() ? *units : nullptr](ckpt::UnitId unit) {
    const bool known = specs != nullptr && unit < specs->size();
    return known ? (*specs)[unit].name : fmt::format("number {}", unit);
  };
  add_blobs(catalog, request, oracle);
  return oracle;
}

Result<RestorePlan> plan_restore(const RestoreRequest& request, const RestoreOracle& oracle) {
  RestorePlan plan;
  std::optional<ChosenVersion> chosen;  // of the previous want: wants of one unit are adjacent
  for (size_t want = 0; want < request.wants.size(); ++want) {
    const UnitRange& range = request.wants[want];
    if (!chosen || chosen->version.unit != range.unit) {
      CKPT_ASSIGN(chosen, choose_version(request, oracle, range.unit));
    }
    const UnitVersion& version = chosen->version;
    if (!ckpt::base::range_fits(range.offset, range.length, version.bytes)) {
      return make_error(ErrorCode::kInvalidArgument,
                        "run {} step {} unit {}: {} bytes at {} lie outside its {} bytes",
                        oracle.run_name, request.point.step, unit_name(oracle, range.unit),
                        range.length, range.offset, version.bytes);
    }
    plan.versions.push_back({version.snapshot, chosen->note, memory_only(version)});
    if (const auto* lost = plan_want(want, range, version, oracle, plan.reads)) {
      return make_error(ErrorCode::kUnavailable,
                        "run {} step {} unit {}: no source has its {} bytes at {}", oracle.run_name,
                        version.snapshot.step, unit_name(oracle, range.unit), lost->length,
                        lost->offset);
    }
  }
  sort_reads(plan.reads, oracle.places.rank);
  count_bytes(plan);
  return plan;
}

Result<FallbackPlan> plan_fallback(const RestoreRequest& request, const RestoreOracle& oracle,
                                   ckpt::UnitId unit, const ckpt::SnapshotKey& failed,
                                   const std::string& reason, const FailedPlaces& places) {
  const auto fails_too = [&](const PlannedRead& read) {
    if (places.contains(read.place)) return true;
    const auto base = oracle.places.delta_base(read.place.source, read.stored);
    return base && places.contains({read.place.source, *base});
  };
  const auto own = oracle.newest_version(unit, std::nullopt);
  const ckpt::Step own_step = own ? own->snapshot.step : failed.step;
  ckpt::SnapshotKey before = failed;
  for (;;) {
    const auto version = request.exact ? std::nullopt : oracle.newest_version(unit, before);
    CKPT_TRY(health_of(oracle));
    if (!version) return cannot_be_had(request, oracle, unit, own_step, reason);
    FallbackPlan plan;
    bool lost = false;  // no source has all of this version
    for (size_t want = 0; want < request.wants.size(); ++want) {
      if (request.wants[want].unit != unit) continue;
      plan.wants.push_back(want);
      lost |= plan_want(want, request.wants[want], *version, oracle, plan.reads) != nullptr;
    }
    before = version->snapshot;
    if (lost || std::any_of(plan.reads.begin(), plan.reads.end(), fails_too)) continue;
    plan.version = {version->snapshot,
                    instead_note(oracle, unit, version->snapshot.step, own_step, reason)};
    sort_reads(plan.reads, oracle.places.rank);
    return plan;
  }
}

}  // namespace ckptd
