// Paths of outputs: links, and names of this process's descriptors.
#pragma once

#include <filesystem>
#include <optional>

namespace moetrain::report {

// The path at the end of a chain of links; a file need not exist there.
std::filesystem::path end_of_links(std::filesystem::path path);

// The open descriptor of this process that the path names, as /dev/stdout and /dev/fd/3 do;
// nullopt: it names none. Writing to the descriptor itself continues after the output so far, where
// opening the path would begin at the first byte again.
std::optional<int> descriptor_of(const std::filesystem::path& path);

}  // namespace moetrain::report
