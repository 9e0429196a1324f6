// A fault to be injected into a driver.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/abi.hpp"
#include "driver/entry_point.hpp"

namespace cuvmm::driver {

enum class FaultTiming : unsigned char {
  instead,  // the call is not made: nothing has changed when it fails
  after,    // the call is made and then reported as failed, as failures of earlier asynchronous work are
};

struct Fault {
  std::optional<EntryPoint> entry_point;  // nothing: calls of any entry point are counted together
  std::uint64_t call = 1;                 // the n-th call from the moment when the fault is added, from 1
  abi::CUresult result = abi::CUDA_ERROR_UNKNOWN;
  FaultTiming timing = FaultTiming::instead;
  bool lasting = false;  // that call and every later one

  friend bool operator==(const Fault&, const Fault&) = default;
};

// "cuMemMap:3:OUT_OF_MEMORY": the form that parse_faults reads.
[[nodiscard]] std::string to_string(const Fault& fault);

// Reads a list of faults separated by commas. Each is ENTRY_POINT:CALL:RESULT, or ENTRY_POINT:CALL:RESULT:after, where
//   ENTRY_POINT  is the name of one, or `any`
//   CALL         is a number from 1, or with a + behind it (3+) that call and every later one
//   RESULT       is the name of a driver code other than success, with or without CUDA_ERROR_
// An empty text is an empty list. Throws InvalidUse, quoting the item that cannot be read.
[[nodiscard]] std::vector<Fault> parse_faults(std::string_view text);

}  // namespace cuvmm::driver
