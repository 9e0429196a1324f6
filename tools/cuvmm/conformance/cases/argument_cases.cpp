// Every entry point with nothing but zeros, and with each of its pointers null while all else is as it should be.
#include <tuple>
#include <type_traits>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/entry_point_calls.hpp"
#include "driver/decorator.hpp"
#include "driver/signature.hpp"

namespace cuvmm::conformance {

namespace {

using driver::EntryPoint;

// A pointer to where a call reads or writes, other than the pointers that are handles.
template <class T>
constexpr bool is_place() {
  if constexpr (std::is_pointer_v<T>) {
    using Target = std::remove_cv_t<std::remove_pointer_t<T>>;
    return !std::is_same_v<T, CUcontext> && !std::is_same_v<T, CUstream> && !std::is_same_v<T, CUevent> &&
           !std::is_same_v<T, CUmodule> && !std::is_same_v<T, CUfunction> && !std::is_same_v<T, CUgraph> &&
           !std::is_same_v<T, CUgraphExec> && !std::is_same_v<T, CUmemoryPool> && !std::is_same_v<T, CUuserObject> &&
           !std::is_function_v<Target>;
  }
  return false;
}

template <class T>
void null_if(bool wanted, T& argument) {
  if constexpr (is_place<T>()) {
    if (wanted) argument = nullptr;
  } else {
    static_cast<void>(wanted);
    static_cast<void>(argument);
  }
}

// Passes calls on, with one argument null.
class Nulling final : public driver::Decorator<Nulling> {
 public:
  Nulling(std::shared_ptr<driver::Interface> next, std::size_t argument)
      : Decorator(std::move(next)), argument_(argument) {}

  template <EntryPoint entry, class... Arguments>
  CUresult around(Arguments... arguments) {
    std::size_t index = 0;
    (null_if(index++ == argument_, arguments), ...);
    return forward<entry>(arguments...);
  }

 private:
  std::size_t argument_;
};

template <class Parameters, std::size_t... indices>
std::vector<std::size_t> places_among(std::index_sequence<indices...>) {
  std::vector<std::size_t> places;
  ((is_place<std::tuple_element_t<indices, Parameters>>() ? places.push_back(indices) : void()), ...);
  return places;
}

// Which of an entry point's parameters are places.
template <EntryPoint entry>
std::vector<std::size_t> places() {
  using Parameters = driver::ParametersOf<entry>;
  return places_among<Parameters>(std::make_index_sequence<std::tuple_size_v<Parameters>>{});
}

std::vector<std::size_t> places_of(EntryPoint entry) {
  switch (entry) {
#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments) \
  case EntryPoint::name:                                               \
    return places<EntryPoint::name>();
#include "driver/entry_points.def"
  }
  return {};
}

template <EntryPoint entry>
CUresult call_with_zeros(driver::Interface& cuda) {
  return std::apply([&](auto... zeros) { return (cuda.*driver::Traits<entry>::method)(zeros...); },
                    driver::ParametersOf<entry>{});
}

CUresult call_with_zeros(driver::Interface& cuda, EntryPoint entry) {
  switch (entry) {
#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments) \
  case EntryPoint::name:                                               \
    return call_with_zeros<EntryPoint::name>(cuda);
#include "driver/entry_points.def"
  }
  return CUDA_ERROR_UNKNOWN;
}

void add_nulls(Table& table, const EntryPointCall& each) {
  for (const std::size_t argument : places_of(each.entry_point))
    table.add("null." + std::string{driver::name(each.entry_point)} + "." + std::to_string(argument),
              [call = each.call, argument](Environment& cuda) {
                Objects objects = make_objects(cuda);
                Nulling nulling{cuda.shared_driver(), argument};
                return call(nulling, objects);
              });
}

}  // namespace

void add_argument_cases(Table& table) {
  for (const EntryPointCall& each : entry_point_calls()) {
    table.add("zero." + std::string{driver::name(each.entry_point)},
              [entry = each.entry_point](Environment& cuda) { return call_with_zeros(cuda.driver(), entry); });
    add_nulls(table, each);
  }
}

}  // namespace cuvmm::conformance
