// Parsers of ckptd: values of its catalog, arguments of queries, configuration, requests.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ckptd/catalog/values.h"
#include "ckptd/config.h"
#include "ckptd/io/io_shape.h"
#include "ckptd/query/query.h"
#include "ckptd/server/http_response.h"
#include "formats/base/printable.h"
#include "formats/base/unique_fd.h"
#include "tests/ckptd/catalog/records.h"
#include "tests/ckptd/sources/fake_source.h"
#include "tests/formats/samples.h"
#include "tests/fuzz/target.h"

namespace ckpt::fuzz {
namespace {

namespace values = ckptd::values;

// ---- values of the catalog --------------------------------------------------------------------

std::vector<Bytes> value_seeds() {
  values::VersionValue version{.epoch = 3, .attempt = 1, .bytes = 100, .places = {}};
  version.places.resize(2);
  values::CommitValue commit;
  commit.extents.resize(2);
  commit.blobs.resize(2);
  commit.blobs[0].id = blob_id(0, 0);
  commit.blobs[0].name = "rng";
  commit.blobs[0].bytes = 8;
  commit.blobs[1].id = blob_id(1, 0);
  commit.blobs[1].name = "rng";
  commit.extents[0].payload_bytes = 8;
  commit.blob_fragments.emplace_back(blob_id(0, 0), 0, 0, 8, 0, 1, 0);
  commit.grown.push_back(ckpt::wire::to_fb(test::sample_unit("adapter"), 4));
  ckpt::set_key(commit.record, {.run = 7, .lineage = 1, .step = 5});
  ckptd::ScrubState scrub;
  scrub.pass = ckptd::ScrubPass{.number = 2, .began_ns = 5};
  scrub.damages = {{.run = "tiny", .lineage = 1, .step = 5, .unit = "trainer", .reason = "CRC"}};
  return texts({values::encode(values::RunCounters{.commits = 4, .removed_reason = "old"}),
                values::encode(version), values::encode(commit),
                values::encode(ExpertTokenCounts(3)),
                values::encode(values::UnitCrcs{{0, 7}, {4, 9}}),
                values::encode(std::vector<ckptd::SpaceRange>{{1, 4096, 8192}, {2, 0, 4096}}),
                values::encode(scrub), values::encode(test::sample_committed(5, 4))});
}

// A value that decodes must encode to bytes that decode and encode to themselves.
template <typename Decode>
bool round_trips(std::string_view text, const Decode& decode) {
  const auto value = decode(text);
  if (!value) return false;
  const std::string again = values::encode(*value);
  const auto second = decode(again);
  CKPT_ASSERT(second.has_value() && values::encode(*second) == again);
  return true;
}

bool value_parse(ByteView bytes) {
  const std::string_view text = as_text(bytes);
  const auto commit = [](std::string_view value) { return values::decode_commit(value, 7, 1, 5); };
  bool any = round_trips(text, values::decode_run_counters);
  any |= round_trips(text, values::decode_version);
  any |= round_trips(text, commit);
  if (const auto value = commit(text)) any |= ckptd::blobs_of(value->with_extents()).ok();
  any |= round_trips(text, values::decode_token_counts);
  any |= round_trips(text, values::decode_unit_sums);
  any |= round_trips(text, values::decode_ranges);
  any |= round_trips(text, values::decode_scrub_state);
  any |= round_trips(text, values::decode_record);
  return any;
}

// ---- arguments of queries: a verb, a line feed, JSON ------------------------------------------

std::vector<Bytes> args_seeds() {
  return texts({"log\n{\"target\": \"tiny\"}",
                "show\n{\"target\": \"tiny@5\"}",
                "diff\n{\"from\": \"tiny@5\", \"to\": \"tiny@latest\"}",
                "verify\n{\"target\": \"tiny@best\"}",
                "tag\n{\"target\": \"tiny@5\", \"tag\": \"good\"}",
                "pin\n{\"target\": \"tiny@5\", \"remove\": true}",
                "keep\n{\"target\": \"tiny\", \"rules\": {\"last\": 3, \"tags\": [\"a\"]}}",
                "keep\n{\"target\": \"tiny\", \"rules\": {\"every_steps\": 20, \"yearly\": 1}}",
                "keep\n{\"target\": \"tiny\", \"rules\": {\"within_seconds\": 3600}}",
                "prune\n{\"rules\": {\"best\": [{\"metric\": \"loss\", \"count\": 1}]}}",
                "prune\n{\"target\": \"tiny\", \"dry_run\": true, \"rules\": {\"hourly\": 4}}",
                "rm\n{\"target\": \"tiny@5\", \"force\": true}",
                "scrub\n{\"bytes_per_second\": 1000}",
                "grant\n{\"target\": \"tiny\", \"user\": 1001, \"rights\": [\"read\"]}",
                "unit\n{\"target\": \"tiny\", \"unit\": \"trainer\"}",
                "runs\n",
                "show\n{\"target\": \"tiny\", \"page\": \"1.1.10.6.5.2\", \"page_bytes\": 100}",
                "experts\n{\"target\": \"tiny\", \"page\": \"1.1.10.6.5.0.1\", \"page_bytes\": 1}",
                "log\n{\"target\": \"tiny\", \"page\": \"6.1\", \"before\": 10}",
                ("diff\n{\"from\": \"tiny@5\", \"to\": \"tiny@10\", "
                 "\"page\": \"1.1.5.5.5.1.1.10.6.5.1\"}"),
                "alarms\n{\"target\": \"tiny\", \"page\": \"6.0.0\", \"limit\": 3}",
                "prune\n{\"target\": \"tiny\", \"dry_run\": true, \"page\": \"7.1\"}"});
}

// A catalog with one run, one unit and two commits, so that arguments are read to their end.
ckptd::Catalog& small_history() {
  static ckptd::Catalog catalog(ckptd::make_memory_store());
  static const bool filled = [] {
    const auto units = ckptd::test_units(1, 2);
    uint64_t sequence = 1;
    const auto add = [&](const ckptd::fb::RecordT& record) {
      CKPT_ASSERT(catalog.apply(sequence++, record).ok());
    };
    add(ckptd::store_opened());
    add(ckptd::run_created());
    add(ckptd::units_registered(units));
    add(ckptd::lineage_opened(1, 0, 0));
    for (const Step step : {5, 10}) {
      add(ckptd::committed({.point = {1, step}, .units = ckptd::all_units(units), .full = true},
                           units));
    }
    add(ckptd::tagged({1, 10}, "best"));
    return true;
  }();
  CKPT_ASSERT(filled);
  return catalog;
}

const ckptd::Sources& fake_sources() {
  static const auto sources = [] {
    auto made = std::make_unique<ckptd::Sources>();
    ckptd::add_fake_sources(*made, [](const ckptd::FragmentName&) { return false; });
    return made;
  }();
  return *sources;
}

bool args_parse(ByteView bytes) {
  const std::string_view text = as_text(bytes);
  const size_t line = text.find('\n');
  if (line == std::string_view::npos) return false;
  const std::string_view verb = text.substr(0, line);
  const std::string_view args = text.substr(line + 1);
  const ckptd::QueryContext context{.catalog = small_history(), .sources = &fake_sources()};
  bool any = false;
  if (ckptd::is_catalog_verb(verb)) {
    const ckptd::QueryAnswer answer = ckptd::answer_query(context, verb, args);
    CKPT_ASSERT(!answer.json.empty() && answer.exit_code >= 0);
    any = answer.exit_code == 0;
  }
  any |= ckptd::parse_verify_args(context, args).ok();
  any |= ckptd::parse_scrub_args(args).ok();
  any |= ckptd::parse_tag_args(context, args).ok();
  any |= ckptd::parse_pin_args(context, args).ok();
  any |= ckptd::parse_grant_args(context, args).ok();
  any |= ckptd::parse_remove_args(context, args).ok();
  const auto keep = ckptd::parse_keep_args(context, args);
  const auto prune = ckptd::parse_prune_args(context, args);
  for (const auto* rules :
       {keep.ok() ? &keep->rules : nullptr, prune.ok() ? &prune->rules : nullptr}) {
    if (rules == nullptr || !*rules) continue;
    CKPT_ASSERT(check_keep_rules(**rules).ok());
    CKPT_ASSERT(from_fb(to_fb(**rules)).value() == **rules);
  }
  return any || keep.ok() || prune.ok();
}

// ---- HTTP requests and the configuration ------------------------------------------------------

std::vector<Bytes> http_seeds() {
  return texts({"GET /metrics?a=b HTTP/1.1\r\nHost: localhost\r\n\r\n", "HEAD / HTTP/1.0\r\n\r\n",
                "POST /healthz HTTP/1.1\r\n\r\n"});
}
bool http_parse(ByteView bytes) {
  bool asked = false;
  const std::string answer = ckptd::http_response(
      as_text(bytes), [&](const std::string& path) -> std::optional<ckptd::HttpAnswer> {
        CKPT_ASSERT(path.find('?') == std::string::npos);
        asked = true;
        return ckptd::HttpAnswer{200, "ok"};
      });
  CKPT_ASSERT(answer.starts_with(asked ? "HTTP/1.1 200 " : "HTTP/1.1 40"));
  return asked;
}

std::vector<Bytes> config_seeds() {
  return texts({"data = \"/d\"\nlisten = \"unix:/s\"\narena = \"1GiB\"\n",
                "http = \"127.0.0.1:9464\"\nallow_uids = [1, 2]\nlog_level = \"info\"\n",
                "codec = \"zstd\"\nsnapshot_deadline = \"60s\"\ndisk_reserve = \"256MiB\"\n",
                "[::1]:9464", "32x4MiB", "auto"});
}
bool config_parse(ByteView bytes) {
  const std::string_view text = as_text(bytes);
  const base::UniqueFd file(::memfd_create("config", MFD_CLOEXEC));
  CKPT_ASSERT(::write(file.get(), bytes.data(), bytes.size()) ==
              static_cast<ssize_t>(bytes.size()));
  ckptd::Config config;
  const Status loaded = ckptd::load_config(fmt::format("/proc/self/fd/{}", file.get()), config);
  bool any = loaded.ok();
  const Status fits = any ? ckptd::validate(config) : loaded;
  if (!fits.ok()) {
    const std::string& said = fits.error().message;
    CKPT_ASSERT(!said.empty() && base::escaped(said) == said);
  }
  const auto address = ckptd::parse_http_address(text);
  if (address.ok()) CKPT_ASSERT(address->port >= 0 && address->port <= 65535);
  const auto shape = ckptd::parse_io_shape(text);
  if (shape.ok()) CKPT_ASSERT(ckptd::parse_io_shape(ckptd::to_text(*shape)).value() == *shape);
  any |= ckptd::parse_io_shape_choice(text).ok();
  return any || address.ok();
}

}  // namespace

const std::vector<Target>& daemon_targets() {
  static const std::vector<Target> targets = {
      {"value", value_seeds, value_parse},
      {"args", args_seeds, args_parse},
      {"http", http_seeds, http_parse},
      {"config", config_seeds, config_parse},
  };
  return targets;
}

}  // namespace ckpt::fuzz
