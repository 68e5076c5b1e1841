// Advice where --resume names nothing: a run that does not exist, or has no commit.
#pragma once

#include <string>
#include <string_view>

namespace moetrain {

// The next step after "run X: no such run", or a run without a commit: words to append to the
// message. Empty for other messages.
std::string resume_remedy(std::string_view message);

}  // namespace moetrain
