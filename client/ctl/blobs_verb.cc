#include "client/ctl/blobs_verb.h"

#include <filesystem>

#include "client/ctl/new_file.h"
#include "client/ctl/print_values.h"
#include "client/ctl/table.h"
#include "client/ctl/view.h"
#include "formats/base/counted.h"

namespace ckptctl {
namespace {

using ckpt::ErrorCode;
using ckpt::make_error;
namespace fs = std::filesystem;

struct BlobsArguments {
  std::string target;
  std::string out;
};

// Path in the folder; names of blobs have no slash. The prefix keeps "." and ".." from being paths.
std::string file_name_of(const ckpt::client::Blob& blob) {
  return blob.global ? "global." + blob.name : fmt::format("rank-{}.{}", blob.rank, blob.name);
}

Json blob_row(const ckpt::client::Blob& blob) {
  return {{"blob", blob.name},
          {"rank", blob.rank},
          {"global", blob.global},
          {"bytes", blob.bytes},
          {"crc32c", fmt::format("{:08x}", blob.crc32c)}};
}

// A blob fits into one restore: it has at most kReadBytes.
Result<std::string> write_blob(Link& link, const View& view, const ckpt::client::Blob& blob,
                               const std::string& folder) {
  if (blob.bytes > kReadBytes) {
    return make_error(ErrorCode::kCorrupt, "run {} step {}: blob {} of {} bytes", view.run,
                      view.step, blob.name, blob.bytes);
  }
  std::vector<std::byte> bytes(blob.bytes);
  if (!bytes.empty()) {
    CKPT_TRY(keep_holding(view));
    CKPT_TRY(
        link.read(view.run, view.lineage, view.step, {{blob.unit, 0, blob.bytes, bytes.data()}}));
  }
  const std::string name = file_name_of(blob);
  CKPT_ASSIGN(NewFile file, NewFile::create(folder, name, blob.bytes));
  CKPT_TRY(file.write(0, bytes));
  CKPT_TRY(file.commit());
  return name;
}

Result<Json> write_blobs(Link& link, const View& view, const std::vector<ckpt::client::Blob>& blobs,
                         const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return make_error(ErrorCode::kIo, "{}: {}", folder, error.message());
  CKPT_TRY(remove_leftovers(folder));
  for (const ckpt::client::Blob& blob : blobs) {
    if (!fs::exists(fs::symlink_status(fs::path(folder) / file_name_of(blob), error))) continue;
    return make_error(ErrorCode::kAlreadyExists, "{}/{} exists; remove it or choose another folder",
                      folder, file_name_of(blob));
  }
  Json files = Json::array();
  for (const ckpt::client::Blob& blob : blobs) {
    CKPT_ASSIGN(std::string name, write_blob(link, view, blob, folder));
    files.push_back(std::move(name));
  }
  return files;
}

Result<Outcome> run_blobs(Link& link, const BlobsArguments& args) {
  CKPT_ASSIGN(const View view, hold_view(link, args.target));
  CKPT_ASSIGN(const std::vector<ckpt::client::Blob> blobs,
              link.blobs(view.run, view.lineage, view.step));
  Json document{{"run", view.run}, {"lineage", view.lineage}, {"step", view.step}};
  document["blobs"] = Json::array();
  for (const ckpt::client::Blob& blob : blobs) document["blobs"].push_back(blob_row(blob));
  if (!args.out.empty()) {
    CKPT_ASSIGN(Json files, write_blobs(link, view, blobs, args.out));
    document["out"] = args.out;
    document["files"] = std::move(files);
  }
  return Outcome{std::move(document), print_blobs, 0};
}

std::string owner_of(const Json& blob) {
  return member(blob, "global") == true ? "all ranks" : "rank " + text(blob, "rank");
}

}  // namespace

std::string blob_table(const Json& blobs) {
  if (!blobs.is_array() || blobs.empty()) return {};
  Table table({{"BLOB"}, {"OF"}, {"SIZE", Table::Align::kRight}, {"CRC32C"}, {"DAMAGE"}});
  for (const Json& blob : blobs) {
    table.add({text(blob, "blob"), owner_of(blob), size(blob, "bytes"), text(blob, "crc32c"),
               member(blob, "damage").is_null() ? "" : text(blob, "damage")});
  }
  return "\n" + table.text();
}

std::string blob_change_table(const Json& changes) {
  if (!changes.is_array() || changes.empty()) return {};
  Table table({{"BLOB"}, {"OF"}, {"CHANGE"}, {"SIZE", Table::Align::kRight}});
  for (const Json& blob : changes) {
    table.add({text(blob, "blob"), owner_of(blob), text(blob, "change"), size(blob, "bytes")});
  }
  return "\n" + table.text();
}

std::string print_blobs(const Json& document) {
  const Json blobs = member(document, "blobs");
  const std::string count = ckpt::base::counted(blobs.size(), "blob");
  const Json files = member(document, "files");
  const std::string written =
      files.is_array() ? fmt::format(", written to {}", text(document, "out")) : "";
  return fmt::format("{}: {}{}\n{}", commit_name(document), count, written, blob_table(blobs));
}

void add_blobs(Builder& build) {
  const auto args = std::make_shared<BlobsArguments>();
  CLI::App* blobs = build.add(
      "blobs", "List the blobs of a commit, or write them into a folder",
      "  ckptctl blobs tiny@1200\n  ckptctl blobs tiny@latest --out blobs\n"
      "The files are rank-R.NAME and global.NAME. Only the commit's own blobs are listed.",
      [args](Link& link) { return run_blobs(link, *args); }, {.for_restore = true});
  build.target(blobs, args->target, "commit", kCommitNames);
  blobs->add_option("--out", args->out,
                    "Write each blob into this folder, as a file of its own; no file is replaced");
}

}  // namespace ckptctl
