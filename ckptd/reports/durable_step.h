// A run's newest commit, as status, metrics and conditions show it. Pure.
#pragma once

#include "ckptd/catalog/catalog.h"
#include "ckptd/observe/run_progress.h"

namespace ckptd {

RunProgress::Durable durable_of(const CommitInfo& commit);

}  // namespace ckptd
