// The store's directory itself. A new directory is an entry of its parent, which may not be synced
// yet: after a power loss everything in the directory can be gone, even if it was durable.
#pragma once

#include <functional>
#include <string>

#include "formats/base/result.h"

namespace ckptd {

using SyncDirectory = std::function<ckpt::Status(const std::string& path)>;

// fsync. kPermissionDenied: the directory may not be opened.
ckpt::Status sync_directory_at(const std::string& path);

// Creates the directory and its missing parents. After it returns, no power loss removes any of
// them, even if an earlier attempt was interrupted at any moment. Each directory is synced into its
// parent before anything is made in it, and the lowest existing one is synced again. If the parent
// of an existing directory is unreadable, its creator is trusted to have synced it. Errors name the
// directory, and so does a log line if this call has created it.
//
// New directories are for this user alone (0700). `passage`: path of a socket that other users may
// connect to; directories on that path let them through (0711), but not list entries.
ckpt::Status make_durable_directory(const std::string& path,
                                    const SyncDirectory& sync = sync_directory_at,
                                    const std::string& passage = {});

// Closes a directory of the store to other users, with a warning; earlier versions of
// ckptd made it readable. A failure is only a warning. A missing directory is
// ignored.
void close_to_others(const std::string& path);

}  // namespace ckptd
