// Parsers of texts that people and other programs write: formats/, ckptctl, the trainer's files.
#include <nlohmann/json.hpp>

#include "client/ctl/import_layout.h"
#include "client/ctl/manifest.h"
#include "client/ctl/pages.h"
#include "formats/json_text.h"
#include "formats/selector.h"
#include "tests/fuzz/target.h"
#include "trainer/placement/plan_files.h"
#include "trainer/report/report.h"
#include "trainer/simulate/model_file.h"
#include "trainer/simulate/trace.h"

namespace ckpt::fuzz {
namespace {

std::vector<Bytes> selector_seeds() {
  return texts({"tiny", "tiny@120", "tiny@latest", "tiny@best-loss", "tiny~2", "tiny~2@15",
                "tiny~18446744073709551615@latest"});
}
bool selector_parse(ByteView bytes) {
  const Result<Selector> selector = parse_selector(as_text(bytes));
  if (!selector.ok()) return false;
  CKPT_ASSERT(parse_selector(to_string(*selector)).value() == *selector);
  return true;
}

std::vector<Bytes> commit_name_seeds() {
  return texts({"120", "latest", "best-loss", "~2@15", "~2", "@7", "other~3@latest", "tiny@120"});
}
// An accepted name names the run in full, and is read as the same commit again.
bool commit_name_parse(ByteView bytes) {
  const Result<Selector> selector = parse_commit_name(as_text(bytes), "tiny");
  if (!selector.ok()) return false;
  CKPT_ASSERT(selector->kind != Selector::Kind::kRun);
  CKPT_ASSERT(parse_commit_name(to_string(*selector), "other").value() == *selector);
  return true;
}

std::vector<Bytes> json_seeds() {
  return texts({R"({"target": "tiny", "rules": {"last": 3, "tags": ["a", "\u00e9"]}})",
                R"([[[[1, -2.5e300, null, true, {"a": {}}]]]])", R"("text")",
                "18446744073709551616"});
}
bool json_parse(ByteView bytes) {
  const std::string_view text = as_text(bytes);
  if (!check_json(text).ok()) return false;
  // Accepted text is a value that can be copied and printed within the stack.
  const auto value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  CKPT_ASSERT(!value.is_discarded());
  const auto replace = nlohmann::json::error_handler_t::replace;
  CKPT_ASSERT(check_json(nlohmann::json(value).dump(-1, ' ', false, replace)).ok());
  return true;
}

// ---- answers in pages: one to a line -----------------------------------------------------------

std::vector<Bytes> pages_seeds() {
  return texts(
      {R"({"next": "5.1", "lists": [], "document": [{"step": 5}]})"
       "\n"
       R"({"next": null, "lists": [], "document": [{"step": 1}]})",
       R"({"next": "1", "lists": ["layers"], "document": {"step": 5, "layers": )"
       R"([{"layer": 0, "experts": [{"expert": 0}]}]}})"
       "\n"
       R"({"next": null, "lists": ["layers"], "document": {"step": 5, "layers": )"
       R"([{"layer": 0, "experts": [{"expert": 1}]}]}})",
       R"({"next": null, "lists": ["kept", "removed"], "document": {"kept": [], "removed": []}})"});
}
bool pages_parse(ByteView bytes) {
  std::string_view text = as_text(bytes);
  ckptctl::PageJoiner whole("log");
  bool any = false;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!check_json(line).ok()) return false;
    auto page = ckptctl::parse_page("log", ckptctl::Json::parse(line, nullptr, false));
    if (!page.ok()) {
      CKPT_ASSERT(!page.error().message.empty());
      return false;
    }
    if (!whole.add(std::move(page).value()).ok()) return false;
    any = true;
  }
  const auto replace = ckptctl::Json::error_handler_t::replace;
  CKPT_ASSERT(!std::move(whole).document().dump(-1, ' ', false, replace).empty());
  return any;
}

// ---- the manifest of an export ----------------------------------------------------------------

std::vector<Bytes> manifest_seeds() {
  ckptctl::Manifest manifest{.step = 60, .resumable = true, .metadata = R"({"a": 1})", .units = {}};
  ckptctl::ViewUnit unit;
  unit.name = "layers.0.experts.1.weights";
  unit.bytes = 16;
  unit.tensors = {{.name = "w1", .dtype = DType::kF32, .shape = {2, 2}}};
  unit.layer = 0;
  unit.expert = 1;
  unit.part = "weights";
  manifest.units = {unit};
  return texts({ckptctl::manifest_json(manifest).dump(),
                R"({"metadata": {"total_size": 16}, "weight_map": )"
                R"({"a": "model-00001-of-00002.safetensors", "b": "model.safetensors"}})"});
}
bool manifest_parse(ByteView bytes) {
  // The input may also be the index of safetensors files, which must stay inside the folder.
  const auto index = ckptctl::WeightIndex::parse(as_text(bytes));
  if (index.ok()) {
    for (const std::string& file : index->files()) CKPT_ASSERT(ckptctl::is_weight_file(file));
    CKPT_ASSERT(!index->check({}).ok());
    return true;
  }
  const Result<ckptctl::Manifest> manifest = ckptctl::parse_manifest(as_text(bytes));
  if (!manifest.ok()) return false;
  const std::string text = ckptctl::manifest_json(*manifest).dump();
  const auto again = ckptctl::parse_manifest(text);
  CKPT_ASSERT(again.ok() && ckptctl::manifest_json(*again).dump() == text);
  return true;
}

// ---- files of the trainer ---------------------------------------------------------------------

constexpr std::string_view kTrace =
    "iteration,layer,e0,e1\n0,0,12,4\n0,1,8,8\n10,0,1,15\n10,1,16,0\n";

std::vector<Bytes> loads_seeds() { return texts({kTrace, "120,80,40", "rank,node\n0,a\n1,b\n"}); }
bool loads_parse(ByteView bytes) {
  const std::string_view text = as_text(bytes);
  const auto trace = moetrain::parse_loads_csv(text, "trace", std::nullopt);
  if (trace.ok()) {
    CKPT_ASSERT(!trace->empty());
    for (const auto& layer : *trace) CKPT_ASSERT(layer.size() == trace->front().size());
  }
  const auto domains = moetrain::parse_domains(text, "domains", 2);
  CKPT_ASSERT(!domains.ok() || domains->size() == 2);
  return moetrain::parse_loads(text, "loads").ok() || trace.ok() || domains.ok();
}

std::vector<Bytes> cluster_seeds() {
  return texts({"0,add,a\n0,add,b\n1500,remove,a\n\n90000,add,a\n"});
}
bool cluster_parse(ByteView bytes) {
  const auto trace = moetrain::simulate::parse_trace(as_text(bytes), "trace");
  if (!trace.ok()) return false;
  moetrain::simulate::NodeTrace cut = *trace;
  CKPT_ASSERT(moetrain::simulate::end_at(cut, 1).ok());
  CKPT_ASSERT(cut.end == 1);
  return true;
}

std::vector<Bytes> model_seeds() {
  const auto model = moetrain::simulate::read_model(CKPT_FUZZ_MODEL);
  CKPT_ASSERT(model.ok());
  return texts({moetrain::simulate::model_text(*model)});
}
bool model_parse(ByteView bytes) {
  const auto model = moetrain::simulate::parse_model(as_text(bytes), "model");
  if (!model.ok()) return false;
  const std::string text = moetrain::simulate::model_text(*model);
  const auto again = moetrain::simulate::parse_model(text, "model");
  CKPT_ASSERT(again.ok() && moetrain::simulate::model_text(*again) == text);
  return true;
}

std::vector<Bytes> report_seeds() {
  moetrain::report::Report report;
  report.losses.resize(2);
  report.losses[1].step = 1;
  return texts({moetrain::report::to_json(report)});
}
bool report_parse(ByteView bytes) {
  const auto report = moetrain::report::parse_report(as_text(bytes), "report");
  if (!report.ok()) return false;
  const std::string text = moetrain::report::to_json(*report);
  const auto again = moetrain::report::parse_report(text, "report");
  CKPT_ASSERT(again.ok() && moetrain::report::to_json(*again) == text);
  return true;
}

}  // namespace

const std::vector<Target>& text_targets() {
  static const std::vector<Target> targets = {
      {"selector", selector_seeds, selector_parse},
      {"commit_name", commit_name_seeds, commit_name_parse},
      {"json", json_seeds, json_parse},
      {"pages", pages_seeds, pages_parse},
      {"manifest", manifest_seeds, manifest_parse},
      {"loads", loads_seeds, loads_parse},
      {"cluster", cluster_seeds, cluster_parse},
      {"model", model_seeds, model_parse},
      {"report", report_seeds, report_parse},
  };
  return targets;
}

}  // namespace ckpt::fuzz
