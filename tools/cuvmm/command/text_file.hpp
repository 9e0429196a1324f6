// Files that a command reads as a whole, and those that take what it has found.
#pragma once

#include <cstdint>
#include <string>

namespace cuvmm::command {

// The content of a regular file of at most that many bytes. Throws InputError for any other: one that is a directory, a
// pipe or a device, which might never end, or never begin; one that is larger; one that cannot be read.
[[nodiscard]] std::string content_of_file(const std::string& path, std::uint64_t most_bytes);

// Throws InputError unless the file can be written to; makes it if it is not there, and changes nothing in it. To be
// asked before work whose result would otherwise be lost.
void check_writable(const std::string& path);

// Whether both paths lead to one regular file, by links too, or would if it is still to be made. Writing to one of them
// would then destroy what the other one holds.
[[nodiscard]] bool are_same_file(const std::string& one, const std::string& other);

// Writes the text to the file in place of what it held. Throws InputError if not all of it can be written.
void write_file(const std::string& path, const std::string& text);

}  // namespace cuvmm::command
