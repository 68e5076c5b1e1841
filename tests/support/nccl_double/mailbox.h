// Mailbox of the ranks of the double of NCCL, threads or processes: files in a folder. Each file is
// written under a temporary name and then renamed, so a visible file is complete. An error here
// ends the process, because the test's machine is broken.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace nccl_double {

using Bytes = std::vector<std::byte>;

// A new one, under the folder that NCCL_DOUBLE_FOLDER names, else under that for temporary files.
std::string make_mailbox();
void post(const std::string& mailbox, const std::string& name, const Bytes& bytes);
bool is_posted(const std::string& mailbox, const std::string& name);
Bytes read_message(const std::string& mailbox, const std::string& name);
// Like read_message(), and removes the file.
Bytes take(const std::string& mailbox, const std::string& name);
// Removes the mailbox and all files in it. Ranks may call this at the same time.
void remove_mailbox(const std::string& mailbox);

[[noreturn]] void die(const std::string& what);

}  // namespace nccl_double
