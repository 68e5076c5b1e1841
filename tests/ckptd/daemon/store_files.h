// Files of a store on a memory disk, as bytes: to keep, exchange and put back.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "ckptd/history/recovered_store.h"
#include "ckptd/io/store_paths.h"
#include "formats/base/checked.h"

namespace ckptd::testing {

inline std::vector<std::byte> file_bytes(Disk& disk, const std::string& path) {
  const FileId file = disk.open(path, {}).value();
  std::vector<std::byte> bytes(disk.size(file).value());
  EXPECT_EQ(disk.read_now(file, 0, bytes).value(), bytes.size());
  disk.close(file);
  return bytes;
}

inline void truncate_file(Disk& disk, const std::string& path, uint64_t bytes) {
  const FileId file = disk.open(path, {}).value();
  EXPECT_TRUE(disk.truncate(file, bytes).ok());
  disk.close(file);
}

// Makes or replaces the file, padded to whole blocks as journals are.
inline void put_file(Disk& disk, const std::string& path, const std::vector<std::byte>& bytes) {
  (void)disk.remove(path);
  const FileId file = disk.open(path, {.create = true}).value();
  AlignedBuffer buffer(ckpt::base::align_up(std::max<size_t>(bytes.size(), 1), 4096));
  std::copy(bytes.begin(), bytes.end(), buffer.bytes().begin());
  const auto whole = buffer.bytes().first(ckpt::base::align_up(bytes.size(), 4096));
  if (!whole.empty()) {
    EXPECT_TRUE(write_blocking(disk, file, 0, whole).ok());
  }
  disk.close(file);
}

// Every file of the store, by path.
inline std::map<std::string, std::vector<std::byte>> all_files(Disk& disk) {
  std::map<std::string, std::vector<std::byte>> files;
  for (const std::string directory : {kJournalDirectory, kSegmentsDirectory}) {
    const std::vector<std::string> names = disk.list(directory).value();
    for (const std::string& name : names) {
      files[directory + "/" + name] = file_bytes(disk, directory + "/" + name);
    }
  }
  return files;
}

// Offset at which the journal's records end. The file is longer: it is preallocated.
inline uint64_t journal_end(Disk& disk) {
  const FileId file = disk.open(kJournalPath, {}).value();
  const auto scan = scan_journal_file(disk, file, [](uint64_t, const auto&) { return Status(); });
  disk.close(file);
  return scan.value().end.offset;
}

inline std::vector<ckpt::fb::RecordT> journal_records(Disk& disk) {
  std::vector<ckpt::fb::RecordT> all;
  const FileId file = disk.open(kJournalPath, {}).value();
  const auto scan = scan_journal_file(disk, file, [&](uint64_t, const auto& record) {
    all.push_back(record);
    return Status();
  });
  EXPECT_TRUE(scan.ok());
  disk.close(file);
  return all;
}

}  // namespace ckptd::testing
