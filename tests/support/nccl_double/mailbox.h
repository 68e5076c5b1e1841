// Where ranks of the double of NCCL leave things for each other, whether they are threads or
// processes: files of a folder. Each is written aside and then given its name, so whoever sees it
// sees all of it. What goes wrong here ends the process: it is the test's machine that is broken.
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
Bytes look_at(const std::string& mailbox, const std::string& name);
// The same, and removes it.
Bytes take(const std::string& mailbox, const std::string& name);
// With all that is left in it. Ranks may do so at the same time.
void remove_mailbox(const std::string& mailbox);

[[noreturn]] void die(const std::string& what);

}  // namespace nccl_double
