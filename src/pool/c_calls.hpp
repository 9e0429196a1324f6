// What all functions in C have in common.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "cuvmm/pool/c_api.h"
#include "cuvmm/pool/pool.hpp"
#include "pool/process_driver.hpp"
#include "refusal.hpp"

struct cuvmm_pool {
  cuvmm::Pool pool;
  bool of_process = false;  // never destroyed
};

namespace cuvmm::pool {

// Throws InvalidUse where a list is missing.
[[nodiscard]] PoolOptions options_of(const cuvmm_pool_options& given);

// Of the exception that is being handled: keeps its message for the thread, and answers its number.
int told_failure() noexcept;

// Does the step; answers 0, or what came of it.
template <class Step>
int guarded(std::string_view call, Step&& step) noexcept {
  try {
    refuse_in_forked_child(call);
    step();
    return CUVMM_SUCCESS;
  } catch (...) {
    return told_failure();
  }
}

template <class Pointer>
Pointer& required(Pointer* pointer, std::string_view call, std::string_view argument) {
  if (pointer == nullptr)
    raise(invalid_use(call, fmt::format("{} = null", argument), "The argument is needed", "Pass a valid pointer"));
  return *pointer;
}

inline DeviceAddress address_of(const void* pointer) noexcept {
  return DeviceAddress{reinterpret_cast<std::uintptr_t>(pointer)};
}

}  // namespace cuvmm::pool
