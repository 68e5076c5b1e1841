// The store's directory itself. A directory that was made is an entry of the one above it, which
// nobody has synced: after a loss of power all that was durable in it can be gone.
#pragma once

#include <functional>
#include <string>

#include "formats/base/result.h"

namespace ckptd {

using SyncDirectory = std::function<ckpt::Status(const std::string& path)>;

// fsync. kPermissionDenied: it may not be opened.
ckpt::Status sync_directory_at(const std::string& path);

// Makes the directory where it is not there, and those above it. Once it returns, a loss of power
// takes none of them away, whoever had begun to make them and was stopped at any moment: each is
// synced into the one above before anything is made in it, and the lowest that is there already is
// synced once more. What is there may lie in a directory that this process may not read; then who
// made it is trusted to have synced it. Errors name the directory; so does a log line if this call
// has made it.
//
// What is made is for this user alone (0700). `passage`, the path of a socket that others may
// connect to: directories on the way to it let others through (0711), who still see nothing.
ckpt::Status make_durable_directory(const std::string& path,
                                    const SyncDirectory& sync = sync_directory_at,
                                    const std::string& passage = {});

// A directory of the store that other users may look into, as earlier versions of ckptd made them,
// is closed to them, with a warning; so it is a warning if that cannot be done. One that is not
// there is none.
void close_to_others(const std::string& path);

}  // namespace ckptd
