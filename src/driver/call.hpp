// The one way in which the library calls a driver: an answer other than success becomes a Failure or an exception that
// names the call, its arguments, the rule and the way out.
#pragma once

#include <optional>
#include <string>
#include <type_traits>

#include "cuvmm/result.hpp"
#include "driver/format.hpp"
#include "driver/interface.hpp"
#include "driver/signature.hpp"

namespace cuvmm::driver {

// What describe_failure needs to know of a call beyond its text.
struct CallFacts {
  std::optional<std::size_t> asked_bytes;
  bool concerns_host_memory = false;
};

// Puts a failure together. Asks the driver for its explanation first of all: that belongs to the thread's last call.
[[nodiscard]] Failure describe_failure(Interface& driver, EntryPoint entry, CUresult result, std::string arguments,
                                       const CallFacts& facts);

template <EntryPoint entry, class Parameters = ParametersOf<entry>>
struct Caller;

// Takes arguments as the parameter types of the entry point, so that a size may be given as an int and a pointer as
// nullptr.
template <EntryPoint entry, class... Parameters>
struct Caller<entry, std::tuple<Parameters...>> {
  static CUresult raw(Interface& driver, Parameters... arguments) {
    return (driver.*Traits<entry>::method)(arguments...);
  }
  static void call(Interface& driver, Parameters... arguments) {
    const CUresult result = raw(driver, arguments...);
    if (result != CUDA_SUCCESS) [[unlikely]]
      raise(failure(driver, result, arguments...));
  }
  static Result<void> try_call(Interface& driver, Parameters... arguments) {
    const CUresult result = raw(driver, arguments...);
    if (result != CUDA_SUCCESS) [[unlikely]]
      return failure(driver, result, arguments...);
    return {};
  }

 private:
  static CallFacts facts(const Parameters&... arguments) {
    CallFacts facts;
    if constexpr (entry == EntryPoint::cuMemCreate) {
      const auto& [handle, size, properties, flags] = std::tie(arguments...);
      facts.asked_bytes = size;
      facts.concerns_host_memory = properties != nullptr && properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    } else if constexpr (entry == EntryPoint::cuMemAlloc || entry == EntryPoint::cuMemHostAlloc ||
                         entry == EntryPoint::cuMemAllocHost || entry == EntryPoint::cuMemAddressReserve ||
                         entry == EntryPoint::cuMemHostRegister) {
      facts.asked_bytes = std::get<1>(std::tie(arguments...));
    }
    return facts;
  }
  [[gnu::noinline, gnu::cold]] static Failure failure(Interface& driver, CUresult result, Parameters... arguments) {
    return describe_failure(driver, entry, result, format_given<entry>(arguments...), facts(arguments...));
  }
};

// call<EntryPoint::cuMemUnmap>(driver, pointer, size): calls it, and throws if the answer is not success.
template <EntryPoint entry, class... Arguments>
void call(Interface& driver, Arguments... arguments) {
  Caller<entry>::call(driver, arguments...);
}

// The same with the failure as a value.
template <EntryPoint entry, class... Arguments>
Result<void> try_call(Interface& driver, Arguments... arguments) {
  return Caller<entry>::try_call(driver, arguments...);
}

}  // namespace cuvmm::driver
