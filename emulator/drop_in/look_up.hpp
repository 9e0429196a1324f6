// The forms of entry points, and how cuGetProcAddress chooses among them.
#pragma once

#include <span>
#include <string_view>

#include "driver/abi.hpp"

namespace cuvmm::emulator::drop_in {

// What a null stream means to a form.
enum class DefaultStream : unsigned char { legacy, per_thread };

struct Form {
  const char* name;  // what cuGetProcAddress is asked for
  int version;       // the CUDA version that it came with
  DefaultStream default_stream;
  void* function;
};

// All forms of all entry points, in no order that matters.
[[nodiscard]] std::span<const Form> forms() noexcept;

struct Found {
  void* function = nullptr;
  abi::CUdriverProcAddressQueryResult status = abi::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
};

// The newest form of that name that is no newer than `version`. One for the wanted default stream is taken before all
// others; where there is none, that of the legacy default stream.
[[nodiscard]] Found look_up(std::span<const Form> all, std::string_view name, int version,
                            DefaultStream wanted) noexcept;

}  // namespace cuvmm::emulator::drop_in
