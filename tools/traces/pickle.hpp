// Pickles, as Python writes them, of nothing but data.
#pragma once

#include <string_view>

#include "traces/plain_values.hpp"

namespace cuvmm::traces {

// Reads a pickle of protocol 2 to 5. A pickle is a program; this knows only those of its opcodes that put plain data
// together, and refuses every other one, those above all that name, make or call something: no code is run, whatever
// the bytes are. Time and memory are at most in proportion to the number of bytes, and nesting takes no stack.
//
// Texts of the values lie in `bytes`. Throws Broken, with the place of the byte, for an opcode that is not known, for
// what ends too early or has more behind its end, and for everything that no pickler writes.
[[nodiscard]] PlainValues read_pickle(std::string_view bytes);

}  // namespace cuvmm::traces
