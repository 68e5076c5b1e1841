#include "client/ctl/export.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "client/ctl/export_folder.h"
#include "client/ctl/exported_file.h"
#include "client/ctl/file_windows.h"
#include "client/ctl/manifest.h"
#include "client/ctl/model_config.h"
#include "formats/base/assert.h"
#include "formats/base/crc32c.h"
#include "formats/base/json_dump.h"

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

// Writes in order, with a checksum. Renews the view's hold meanwhile, since the disk may be slow.
class HeldWriter {
 public:
  HeldWriter(NewFile& file, const View& view) : file_(file), view_(view) {}

  Status write(ckpt::ByteView bytes) {
    while (!bytes.empty()) {
      // Linux takes several times as long for pages that it is given in parts of megabytes.
      const ckpt::ByteView part = bytes.first(std::min<size_t>(bytes.size(), kTileBytes));
      CKPT_TRY(file_.write(written_, part));
      crc32c_ = ckpt::base::crc32c(part, crc32c_);
      written_ += part.size();
      bytes = bytes.subspan(part.size());
      if (written_ - held_at_ < kHoldBytes) continue;
      CKPT_TRY(keep_holding(view_));
      held_at_ = written_;
    }
    return {};
  }
  uint64_t written() const { return written_; }
  uint32_t crc32c() const { return crc32c_; }  // of all bytes written

 private:
  static constexpr uint64_t kHoldBytes = 8 << 20;
  NewFile& file_;
  const View& view_;
  uint64_t written_ = 0;
  uint64_t held_at_ = 0;
  uint32_t crc32c_ = 0;
};

// Most bytes of a window with tensors in blocks: it needs them in memory. ckptd reads and checks
// whole fragments, of 64 MiB by default. A block is cut where a window ends, and the fragment there
// is read twice. So a window must have long parts of its blocks; most tensors fit whole.
constexpr uint64_t kSpreadWindowBytes = 512 << 20;
constexpr const char* kHole = "an exported file would have a hole";

// Reads the pieces into `memory`, one after another.
Status read_pieces(Link& link, const View& view, const std::vector<WantedBytes>& pieces,
                   ckpt::MutableByteView memory) {
  for (const auto& batch : in_batches(pieces)) {
    CKPT_TRY(read_batch(link, view, batch, memory));
    for (const WantedBytes& piece : batch) memory = memory.subspan(piece.length);
  }
  return {};
}

// Writes a window whose pieces lie in `memory`.
Status write_tiles(const FileWindow& window, ckpt::ByteView memory, HeldWriter& writer) {
  std::vector<std::byte> image(kTileBytes);
  Tiles tiles(window);
  for (FileWindow tile; tiles.next(tile);) {
    CKPT_ASSERT_MSG(tile.begin == writer.written() && is_filled(tile), kHole);
    unpack(tile, memory, image);
    CKPT_TRY(writer.write(ckpt::ByteView(image).first(tile.bytes)));
  }
  return {};
}

struct WrittenFile {
  NewFile file;
  ExportedFile described;
};

// Grows `memory` if a window needs more.
Result<WrittenFile> write_tensors(Link& link, const View& view, ExportFolder& folder,
                                  const ExportFile& plan, std::vector<std::byte>& memory,
                                  Progress& progress) {
  CKPT_ASSIGN(NewFile file, folder.create(plan.name, plan.bytes));
  HeldWriter writer(file, view);
  CKPT_TRY(writer.write(plan.header));
  FileWindows windows(plan.pieces, {.usual = kReadBytes, .most = kSpreadWindowBytes});
  for (FileWindow window; windows.next(window);) {
    CKPT_ASSERT_MSG(window.begin == writer.written() && is_filled(window), kHole);
    if (memory.size() < window.bytes) {
      memory = {};  // before the larger one is taken
      memory.resize(window.bytes);
    }
    CKPT_TRY(read_pieces(link, view, window.pieces, memory));
    if (any_spread(window.pieces)) {
      CKPT_TRY(write_tiles(window, memory, writer));
    } else {
      CKPT_TRY(writer.write(ckpt::ByteView(memory).first(window.bytes)));
    }
    progress.add(window.bytes);
  }
  CKPT_ASSERT_MSG(writer.written() == plan.bytes, kHole);
  return WrittenFile{std::move(file),
                     describe_file(plan.name, plan.bytes, plan.header, writer.crc32c())};
}

// The text files of the folder: imported ones, and generated ones.
std::vector<OriginalFiles::Text> texts_of(const ExportLayout& layout, const Schema& schema) {
  std::vector<OriginalFiles::Text> texts = layout.texts;
  const auto add = [&texts](const char* name, const std::string& text) {
    const auto bytes = ckpt::as_bytes(text);
    texts.push_back({name, {bytes.begin(), bytes.end()}});
  };
  const bool imported =
      std::ranges::find(texts, kConfigName, &OriginalFiles::Text::name) != texts.end();
  const std::string config = imported ? "" : config_of_metadata(schema.metadata_text);
  if (!config.empty()) add(kConfigName, config);
  if (!layout.index.is_null()) add(kIndexName, ckpt::base::dump_json(layout.index, 2) + "\n");
  return texts;
}

// The next older commit visible from the view, as a target; nothing if there is none.
Result<std::optional<std::string>> older_target(Link& link, const std::string& target) {
  CKPT_ASSIGN(const View view, load_view(link, target));
  CKPT_ASSIGN(const std::optional<uint64_t> older, find_older_step(link, view));
  if (!older) return std::optional<std::string>();
  return std::optional<std::string>(fmt::format("{}~{}@{}", view.run, view.lineage, *older));
}

// The names of all files but ckptd.json, in the order in which they are published.
std::vector<std::string> names_of(const ExportLayout& layout,
                                  const std::vector<OriginalFiles::Text>& texts) {
  std::vector<std::string> names;
  names.reserve(layout.files.size() + texts.size());
  for (const ExportFile& file : layout.files) names.push_back(file.name);
  for (const OriginalFiles::Text& text : texts) names.push_back(text.name);
  return names;
}

Json describe(const View& view, const ExportRequest& request, const ExportLayout& layout,
              const std::vector<std::string>& names) {
  Json files = names;
  files.push_back(kManifestName);
  const bool config = std::ranges::find(names, kConfigName) != names.end();
  return Json{{"run", view.run},
              {"lineage", view.lineage},
              {"step", view.step},
              {"out", request.out},
              {"files", std::move(files)},
              {"tensors", layout.tensors},
              {"bytes", layout.data_bytes},
              {"stale_units", view.stale},
              {"blobs", view.blobs},
              {"config", config},
              {"as_imported", layout.as_imported},
              {"differs", layout.differs}};
}

Result<Json> export_one(Link& link, const ExportRequest& request, const std::string& target,
                        Progress& progress) {
  CKPT_ASSIGN(const View view, load_held_view(link, target));
  if (!view.complete && !view.lost.empty()) {
    return make_error(ErrorCode::kCorrupt, "{}~{}@{}: the view is not complete: {}", view.run,
                      view.lineage, view.step, view.lost);
  }
  if (!view.complete) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "{}~{}@{}: the view is not complete, missing: {}", view.run, view.lineage,
                      view.step, some_of(view.missing));
  }
  CKPT_ASSIGN(Schema schema, load_schema(link, view.run));
  keep_units_of(view, schema);
  CKPT_ASSIGN(const OriginalFiles originals, load_original_files(link, view, schema));
  const auto planned = make_export_layout(schema, request.options, originals);
  if (!planned.ok()) {
    return make_error(planned.error().code, "run {}: {}", view.run, planned.error().message);
  }
  const ExportLayout& layout = *planned;
  const auto texts = texts_of(layout, schema);
  const std::vector<std::string> names = names_of(layout, texts);
  progress.start(layout.data_bytes);
  // An earlier export may take long to read.
  const auto keep_on = [&](uint64_t /*bytes*/) {
    progress.add(0);
    return keep_holding(view);
  };
  CKPT_ASSIGN(ExportFolder folder,
              ExportFolder::open(request.out, names, request.options.resumable, keep_on));

  std::vector<NewFile> written;
  std::vector<ExportedFile> described;
  std::vector<std::byte> memory;
  for (const ExportFile& plan : layout.files) {
    CKPT_ASSIGN(WrittenFile one, write_tensors(link, view, folder, plan, memory, progress));
    written.push_back(std::move(one.file));
    described.push_back(std::move(one.described));
  }
  progress.finish();
  for (const OriginalFiles::Text& text : texts) {
    CKPT_ASSIGN(NewFile file, folder.create(text.name, text.bytes.size()));
    CKPT_TRY(file.write(0, text.bytes));
    written.push_back(std::move(file));
    described.push_back(
        describe_file(text.name, text.bytes.size(), text.bytes, ckpt::base::crc32c(text.bytes)));
  }
  CKPT_ASSIGN(const auto removed, folder.publish(written, {.step = view.step,
                                                           .resumable = request.options.resumable,
                                                           .metadata = schema.metadata_text,
                                                           .units = layout.exported,
                                                           .files = std::move(described)}));
  Json document = describe(view, request, layout, names);
  document["removed"] = removed;
  return document;
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
