// The parameter types of an entry point, for code that is written once for all of them.
#pragma once

#include <tuple>
#include <type_traits>

#include "driver/interface.hpp"

namespace cuvmm::driver {

template <class Method>
struct Signature;
template <class... Types>
struct Signature<CUresult (Interface::*)(Types...)> {
  using Parameters = std::tuple<Types...>;
  using Function = CUresult (*)(Types...);
};

template <EntryPoint entry>
using SignatureOf = Signature<std::remove_const_t<decltype(Traits<entry>::method)>>;

// ParametersOf<EntryPoint::cuMemUnmap> is std::tuple<CUdeviceptr, size_t>.
template <EntryPoint entry>
using ParametersOf = typename SignatureOf<entry>::Parameters;

// FunctionOf<EntryPoint::cuMemUnmap> is CUresult (*)(CUdeviceptr, size_t): the driver's own function.
template <EntryPoint entry>
using FunctionOf = typename SignatureOf<entry>::Function;

}  // namespace cuvmm::driver
