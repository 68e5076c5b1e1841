#include "client/ctl/export.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <optional>

#include "client/ctl/manifest.h"
#include "client/ctl/new_file.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;

// The first few names, and how many more there are.
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  const std::vector<std::string> shown(names.begin(),
                                       names.begin() + std::min(names.size(), kShown));
  const std::string more =
      names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "";
  return fmt::format("{}{}", fmt::join(shown, ", "), more);
}

// A reader prefers model.safetensors to an index, so the two must not lie side by side.
Status prepare_folder(const std::string& out, bool sharded) {
  std::error_code error;
  std::filesystem::create_directories(out, error);
  if (error) return make_error(ErrorCode::kIo, "{}: {}", out, error.message());
  const std::string other = out + "/" + (sharded ? "model.safetensors" : kIndexName);
  if (std::filesystem::exists(other, error)) {
    return make_error(ErrorCode::kAlreadyExists,
                      "{} is there from an export in the other layout; remove it first", other);
  }
  // An earlier export is replaced, as who names its folder means. Others' files are not.
  if (std::filesystem::exists(out + "/" + kManifestName, error)) return {};
  for (const char* name : {kModelName, kIndexName, kConfigName}) {
    if (!std::filesystem::exists(out + "/" + name, error)) continue;
    return make_error(ErrorCode::kAlreadyExists,
                      "{}/{} is there, and not from an export: there is no {} beside it; remove it "
                      "first",
                      out, name, kManifestName);
  }
  return {};
}

Result<NewFile> write_text(const std::string& out, const std::string& name, const Json& document) {
  const std::string text = document.dump(2) + "\n";
  CKPT_ASSIGN(NewFile file, NewFile::create(out, name, text.size()));
  CKPT_TRY(file.write(0, ckpt::as_bytes(text)));
  return file;
}

std::string metadata_text(const Schema& schema) {
  return schema.metadata.is_null() ? "" : schema.metadata.dump();
}

Result<NewFile> write_tensors(Link& link, const View& view, const std::string& out,
                              const ExportFile& plan, Progress& progress) {
  CKPT_ASSIGN(NewFile file, NewFile::create(out, plan.name, plan.bytes));
  CKPT_TRY(file.write(0, plan.header));
  std::vector<std::byte> buffer(kReadBytes);
  for (const auto& batch : in_batches(plan.pieces)) {
    CKPT_TRY(read_batch(link, view, batch, buffer));
    uint64_t at = 0;
    for (const WantedBytes& piece : batch) {
      CKPT_TRY(file.write(piece.destination, ckpt::ByteView(buffer).subspan(at, piece.length)));
      at += piece.length;
    }
    progress.add(at);
  }
  return file;
}

// The next older commit that the view's lineage may have, as a target; nothing if there is none.
Result<std::optional<std::string>> older_target(Link& link, const std::string& target) {
  CKPT_ASSIGN(const View view, load_view(link, target));
  CKPT_ASSIGN(const std::optional<uint64_t> older, find_older_step(link, view));
  if (!older) return std::optional<std::string>();
  return std::optional<std::string>(fmt::format("{}~{}@{}", view.run, view.lineage, *older));
}

Result<Json> export_one(Link& link, const ExportRequest& request, const std::string& target,
                        Progress& progress) {
  CKPT_ASSIGN(const View view, load_view(link, target));
  if (!view.complete) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "run {} step {}: the view is not complete, missing: {}", view.run, view.step,
                      some_of(view.missing));
  }
  CKPT_ASSIGN(const Schema schema, load_schema(link, view.run));
  CKPT_ASSIGN(const ExportLayout layout, make_export_layout(schema, request.options));
  CKPT_TRY(prepare_folder(request.out, layout.files.size() > 1));

  progress.start(layout.data_bytes);
  std::vector<NewFile> written;
  Json names = Json::array();
  for (const ExportFile& plan : layout.files) {
    CKPT_ASSIGN(NewFile file, write_tensors(link, view, request.out, plan, progress));
    written.push_back(std::move(file));
    names.push_back(plan.name);
  }
  progress.finish();
  const bool has_config = schema.metadata.is_object() && schema.metadata.contains("hf_config");
  if (has_config) {
    CKPT_ASSIGN(NewFile config,
                write_text(request.out, "config.json", schema.metadata["hf_config"]));
    written.push_back(std::move(config));
    names.push_back("config.json");
  }
  if (!layout.index.is_null()) {
    CKPT_ASSIGN(NewFile index, write_text(request.out, kIndexName, layout.index));
    written.push_back(std::move(index));
    names.push_back(kIndexName);
  }
  CKPT_ASSIGN(NewFile manifest, write_text(request.out, kManifestName,
                                           manifest_json({.step = view.step,
                                                          .resumable = request.options.resumable,
                                                          .metadata = metadata_text(schema),
                                                          .units = layout.exported})));
  written.push_back(std::move(manifest));
  names.push_back(kManifestName);
  for (NewFile& file : written) CKPT_TRY(file.commit());

  return Json{{"run", view.run},
              {"lineage", view.lineage},
              {"step", view.step},
              {"out", request.out},
              {"files", std::move(names)},
              {"tensors", layout.tensors},
              {"bytes", layout.data_bytes},
              {"stale_units", view.stale},
              {"config", has_config}};
}

}  // namespace

Result<Json> export_view(Link& link, const ExportRequest& request, Progress& progress) {
  Json fallbacks = Json::array();
  std::string target = request.target;
  while (true) {
    auto written = export_one(link, request, target, progress);
    if (written.ok()) {
      (*written)["fallbacks"] = std::move(fallbacks);
      return written;
    }
    if (request.exact || written.error().code != ErrorCode::kCorrupt) return written;
    CKPT_ASSIGN(const auto older, older_target(link, target));
    if (!older) return written;
    fallbacks.push_back({{"view", target}, {"reason", written.error().message}});
    target = *older;
  }
}

}  // namespace ckptctl
