#include "client/ctl/verbs.h"

#include <fmt/ranges.h>

#include "client/ctl/blobs_verb.h"
#include "client/ctl/diff.h"
#include "client/ctl/export.h"
#include "client/ctl/flag_values.h"
#include "client/ctl/grant_verb.h"
#include "client/ctl/heat_map.h"
#include "client/ctl/import.h"
#include "client/ctl/keep_verbs.h"
#include "client/ctl/log_verb.h"
#include "client/ctl/new_file.h"
#include "client/ctl/print.h"
#include "client/ctl/say.h"
#include "client/ctl/scrub_verb.h"
#include "client/ctl/verb_builder.h"
#include "client/ctl/wait_verb.h"
#include "formats/base/counted.h"

namespace ckptctl {
namespace {

// The arguments of all verbs; each verb uses a few of them.
struct Arguments {
  std::string target;
  std::string second;
  std::string out;
  std::string shard_bytes;
  std::string run;
  std::optional<uint64_t> step;
  std::string format = "safetensors";
  std::string by = "lost-tokens";
  std::optional<std::string> svg;
  uint64_t limit = 0;
  bool include_optimizer = false;
  bool resumable = false;
  bool exact = false;
  bool no_norms = false;
  bool plan = false;
  bool list = false;
  bool memory = false;
  bool deleted = false;
};

Result<Outcome> run_export(Link& link, const Arguments& args) {
  ExportRequest request;
  request.target = args.target;
  request.out = args.out;
  request.exact = args.exact;
  request.options.include_optimizer = args.include_optimizer;
  request.options.resumable = args.resumable;
  if (!args.shard_bytes.empty()) {
    CKPT_ASSIGN(request.options.shard_bytes, size_value("--shard-bytes", args.shard_bytes));
  }
  Progress progress("export");
  CKPT_ASSIGN(Json document, export_view(link, request, progress));
  for (const Json& passed : document["fallbacks"]) {
    warn("{} is damaged; an older commit is exported instead (--exact fails in that case): {}",
         passed["view"].get<std::string>(), passed["reason"].get<std::string>());
  }
  if (!document["stale_units"].empty()) {
    warn("{} older than step {}; `show` lists them",
         ckpt::base::counted(document["stale_units"].size(), "unit is", "units are"),
         document["step"].dump());
  }
  if (args.resumable && document["blobs"] != 0) {
    warn(
        "step {}: {} left out, since an import cannot bring blobs back; `ckptctl blobs --out` "
        "writes them",
        document["step"].dump(),
        ckpt::base::counted(document["blobs"].get<uint64_t>(), "blob is", "blobs are"));
  }
  if (document["config"] == false) {
    warn("the run's metadata has no hf_config: no config.json");
  }
  if (const auto differs = document["differs"].get<std::string>(); !differs.empty()) {
    warn("these are not the files that were imported: {}", differs);
  }
  return Outcome{std::move(document), print_export, 0};
}

Result<Outcome> run_import(Link& link, const Arguments& args) {
  Progress progress("import");
  const ImportRequest request{.folder = args.target, .run = args.run, .step = args.step};
  CKPT_ASSIGN(Json document, import_folder(link, request, progress));
  if (const auto alarms = document["alarms"].get<std::string>(); !alarms.empty()) {
    warn("{}", alarms);
  }
  for (const Json& note : document["notes"]) {
    warn("{}", note.get<std::string>());
  }
  if (!document["left_out"].empty()) {
    warn("left out, since only tensors, their index and config.json are kept: {}",
         fmt::join(document["left_out"].get<std::vector<std::string>>(), ", "));
  }
  if (document["resumable"] == false) {
    warn(
        "run {} can be shown, compared and exported, not resumed: the "
        "folder has no state of a trainer (`export --resumable` writes it)",
        args.run);
  }
  return Outcome{std::move(document), print_import, 0};
}

void add_history(Builder& build, const std::shared_ptr<Arguments>& args) {
  CLI::App* runs = build.add_listing(
      "runs", "List all runs", "  ckptctl runs --json\n  ckptctl runs --removed", "runs",
      [args] {
        return args->deleted ? Json{{"removed", true}} : Json::object();
      },
      print_runs);
  runs->add_flag("--removed", args->deleted, "List removed runs instead, with time and reason");
  add_log(build);
  CLI::App* show = build.add_listing(
      "show", "Show a view: which version of each unit it holds",
      "  ckptctl show tiny@1200\n  ckptctl show tiny@latest --json", "show",
      [args] {
        Json question{{"target", args->target}};
        if (args->memory) question["memory"] = true;
        return question;
      },
      print_show);
  build.target(show, args->target, "view", kCommitNames);
  show->add_flag("--memory", args->memory, "Include versions that are only in the memory of ckptd");
  CLI::App* unit = build.add_listing(
      "unit", "Show a unit: its tensors and its versions",
      "  ckptctl unit tiny layers.3.experts.17.weights", "unit",
      [args] {
        return Json{{"target", args->target}, {"unit", args->second}};
      },
      print_unit);
  build.target(unit, args->target, "run",
               "RUN, RUN~LINEAGE, or a commit (only the versions that its view can use)",
               Builder::Next{args->second, "unit", "Name of the unit"});
  CLI::App* alarms = build.add_listing(
      "alarms", "List the alarms of a run's snapshots, newest first", "  ckptctl alarms tiny",
      "alarms",
      [args] {
        Json question{{"target", args->target}};
        if (args->limit > 0) question["limit"] = args->limit;
        return question;
      },
      print_alarms);
  build.target(alarms, args->target, "run", "RUN, RUN~LINEAGE, or a commit");
  alarms->add_option("--limit,-n", args->limit, "List at most this many alarms (default: all)")
      ->check(at_least_one());
}

const std::map<std::string, HeatBy>& heat_by() {
  static const std::map<std::string, HeatBy> names = {{"lost-so-far", HeatBy::kLostSoFar},
                                                      {"lost-tokens", HeatBy::kLostTokens},
                                                      {"staleness", HeatBy::kStaleness}};
  return names;
}

// Prints the view's experts as a map; as a table with --list, as a picture with --svg.
Result<Outcome> run_experts(Link& link, const Arguments& args) {
  Json question{{"target", args.target}};
  if (args.memory) question["memory"] = true;
  CKPT_ASSIGN(Json document, link.document("experts", question));
  const HeatBy by = heat_by().at(args.by);
  int exit_code = 0;
  if (args.svg) {
    // The experts are printed even if the picture fails.
    const Status written = write_text_file(*args.svg, heat_map_svg(heat_map(document, by)));
    if (!written.ok()) exit_code = 1;
    say("{}", written.ok() ? *args.svg + " written" : written.error().message);
  }
  if (args.list) return Outcome{std::move(document), print_experts, exit_code};
  const auto print = [by](const Json& view) {
    return heat_map_text(heat_map(view, by), terminal_style());
  };
  return Outcome{std::move(document), print, exit_code};
}

void add_experts(Builder& build, const std::shared_ptr<Arguments>& args) {
  CLI::App* experts =
      build.add("experts", "Show how stale each expert of a view is, and how many tokens it lost",
                "  ckptctl experts tiny\n  ckptctl experts tiny@1200 --by staleness\n"
                "  ckptctl experts tiny --by lost-so-far --memory\n"
                "  ckptctl experts tiny@latest --svg experts.svg",
                [args](Link& link) { return run_experts(link, *args); });
  build.target(experts, args->target, "view", kCommitNames);
  experts
      ->add_option(
          "--by", args->by,
          "Color by lost-tokens (lost if the view were restored), lost-so-far (lost by the "
          "recoveries of the run) or staleness")
      ->check(CLI::IsMember(heat_by()))
      ->capture_default_str();
  experts->add_option("--svg", args->svg, "Also write the map to this file, as SVG");
  experts->add_flag("--list", args->list, "Print a table instead of a map");
  experts->add_flag("--memory", args->memory,
                    "Include versions that are only in the memory of ckptd");
}

void add_bytes(Builder& build, const std::shared_ptr<Arguments>& args) {
  CLI::App* diff =
      build.add("diff", "Show which units changed between two views, and by how much",
                "  ckptctl diff tiny@100 tiny@200\n  ckptctl diff tiny~1@100 tiny~2@100 --no-norms",
                [args](Link& link) -> Result<Outcome> {
                  CKPT_ASSIGN(Json document,
                              diff_document(link, args->target, args->second, !args->no_norms));
                  return Outcome{std::move(document), print_diff, 0};
                },
                {.for_restore = true});
  diff->add_option("from", args->target, kCommitNames)->required();
  diff->add_option("to", args->second, kCommitNames)->required();
  diff->add_flag("--no-norms", args->no_norms, "Compare names and sizes only, and read no tensors");
  CLI::App* verify = build.add_question(
      "verify", "Read every byte back and check it; exit code 4 if one is wrong",
      "  ckptctl verify\n  ckptctl verify tiny@1200", "verify",
      [args] {
        return args->target.empty() ? Json::object() : Json{{"target", args->target}};
      },
      print_verify, kLongTimeoutMs);
  verify->add_option("target", args->target,
                     "RUN (all its commits) or a commit (default: the whole store)");
  CLI::App* restore = build.add_question(
      "restore", "Show where a restore would read the bytes of a view (--plan)",
      "  ckptctl restore --plan tiny@latest", "restore-plan",
      [args] {
        return Json{{"target", args->target}};
      },
      print_restore_plan);
  build.target(restore, args->target, "view", kCommitNames);
  restore
      ->add_flag("--plan", args->plan,
                 "Only show the plan, and read nothing; `export` writes the bytes")
      ->required();
  CLI::App* exported =
      build.add("export", "Write a view as a Hugging Face folder",
                "  ckptctl export tiny@latest --out model\n"
                "  ckptctl export tiny@1200 --out model --shard-bytes 4GiB --include-optimizer",
                [args](Link& link) { return run_export(link, *args); }, {.for_restore = true});
  build.target(exported, args->target, "view", kCommitNames);
  exported
      ->add_option("--out", args->out,
                   "Folder to write into; files of an earlier export are replaced, no others")
      ->required();
  exported
      ->add_option("--format", args->format, "Format of the weights; safetensors is the only one")
      ->check(CLI::IsMember({"safetensors"}));
  exported->add_option("--shard-bytes", args->shard_bytes,
                       "Split the weights into files of this size, as in 4GiB (default: as "
                       "imported, else one file)");
  exported->add_flag("--exact", args->exact,
                     "Fail on damaged bytes instead of writing an older step");
  exported->add_flag("--include-optimizer", args->include_optimizer,
                     "Include tensors whose names start with `optimizer.` or `optim.`");
  exported->add_flag(
      "--resumable", args->resumable,
      "Export every byte of every unit, so that a run imported from it can be resumed");
}

void add_import(Builder& build, const std::shared_ptr<Arguments>& args) {
  CLI::App* imported = build.add(
      "import", "Import a Hugging Face folder as a new run: the reverse of export",
      "  ckptctl import model --run tiny-copy\n  ckptctl import mixtral --run base --step 0\n"
      "Each expert becomes a unit. Files other than tensors, their index and config.json are left\n"
      "out, and named. An export of the run writes the imported files again, byte for byte.",
      [args](Link& link) { return run_import(link, *args); });
  imported
      ->add_option("folder", args->target,
                   "Folder with model.safetensors, or with shards and an index")
      ->required();
  imported->add_option("--run", args->run, "Name of the new run")->required()->envname("CKPTD_RUN");
  imported->add_option("--step", args->step,
                       "Step of the new commit (default: that in ckptd.json, else 0); a resumable "
                       "export keeps its own");
}

void add_administration(Builder& build, const std::shared_ptr<Arguments>& args) {
  CLI::App* tag = build.add_question(
      "tag", "Give a commit a tag", "  ckptctl tag tiny@1200 best", "tag",
      [args] {
        return Json{{"target", args->target}, {"tag", args->second}};
      },
      print_tag);
  tag->add_option("commit", args->target, kCommitNames)->required();
  tag->add_option("tag", args->second, "Name of the tag")->required();
  CLI::App* untag = build.add_question(
      "untag", "Remove a tag", "  ckptctl untag tiny best\n  ckptctl untag tiny@best", "tag",
      [args] {
        Json question{{"target", args->target}, {"remove", true}};
        if (!args->second.empty()) question["tag"] = args->second;
        return question;
      },
      print_tag);
  untag->add_option("run", args->target, "RUN, or the commit that has the tag: RUN@TAG")
      ->required();
  untag->add_option("tag", args->second, "Name of the tag; not needed with RUN@TAG");
  build.add_question(
      "rebuild", "Rebuild the catalog from the journal", "  ckptctl rebuild", "rebuild",
      [] { return Json::object(); }, print_rebuild, kLongTimeoutMs);
  build.add_question(
      "status", "Show the daemon: health, disk, last durable steps, sessions",
      "  ckptctl status --json", "status", [] { return Json::object(); }, print_status);
}

}  // namespace

void add_verbs(CLI::App& app, const Common& common, Verb& chosen) {
  const auto args = std::make_shared<Arguments>();
  Builder build(app, common, chosen);
  add_history(build, args);
  add_experts(build, args);
  add_bytes(build, args);
  add_blobs(build);
  add_import(build, args);
  add_administration(build, args);
  add_wait(build);
  add_keeping(build);
  add_grant(build);
  add_scrub(build);
}

}  // namespace ckptctl
