// How tables of calls are written, and what calls are given that asks for room or for usual arguments. For the files
// that have such tables.
#pragma once

#include "conformance/cases/entry_point_calls.hpp"

// A call as a line of a table: the entry point, and its arguments in terms of `o`.
#define CUVMM_CALL(name, ...)                                                                              \
  EntryPointCall {                                                                                         \
    cuvmm::driver::EntryPoint::name,                                                                       \
        [](cuvmm::driver::Interface& cuda, [[maybe_unused]] Objects& o) { return cuda.name(__VA_ARGS__); } \
  }

namespace cuvmm::conformance {

// A word that calls read and write; each thread's own, so that all calls can be made by many threads at once.
inline thread_local unsigned long long call_word = 0;

// Room for an answer, likewise.
template <class T>
T* out() {
  thread_local T place{};
  return &place;
}

inline const CUmemAccessDesc* read_write() {
  static const CUmemAccessDesc access = access_of(0);
  return &access;
}

// What destroys nothing, and what a host function does.
inline void nothing(void*) {}

}  // namespace cuvmm::conformance
