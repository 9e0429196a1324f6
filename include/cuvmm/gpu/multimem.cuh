// multimem: the accesses to a multicast address (guide 4.16.4), typed. PTX ISA 8.1, sm_90 and newer; single-precision
// accumulation PTX ISA 8.2. Device code.
//
//   const auto sum = multimem_load_reduce<Operation::add>(multicast_floats + i);   // of every device's memory
//   multimem_store(multicast_floats + i, sum);                                     // to every device's memory
//   multimem_reduce<Operation::add, Order::release>(multicast_counter, 1u);        // to every device's memory
//
// What there is of types, operations, widths, orders and scopes is told by multimem_forms.cuh, which refuses the rest
// in words. A multicast address and the addresses of its devices' own memory are different addresses of the same bytes:
// proxy_fence_alias() (proxy_fence.cuh) has to lie between accesses through one and through the other.
#pragma once

#ifndef __CUDACC__
#error \
    "cuvmm/gpu/multimem.cuh is device code: compile it with nvcc. CPU code takes multimem_forms.cuh or host_memory.cuh"
#endif

#include "cuvmm/gpu/multimem_forms.cuh"
#include "cuvmm/gpu/multimem_text.cuh"

namespace cuvmm::gpu {
namespace detail {

// The register that PTX wants for a type.
template <class T, int bytes = static_cast<int>(sizeof(T))>
struct RegisterOf;
template <class T>
struct RegisterOf<T, 2> {
  using Type = std::uint16_t;
};
template <class T>
struct RegisterOf<T, 4> {
  using Type = std::uint32_t;
};
template <class T>
struct RegisterOf<T, 8> {
  using Type = std::uint64_t;
};
template <>
struct RegisterOf<float, 4> {
  using Type = float;
};
template <>
struct RegisterOf<double, 8> {
  using Type = double;
};

// One overload for each register and number of values. A name is the whole instruction up to its operands.
#define CUVMM_MULTIMEM_ONE(Register, letter)                                                    \
  template <class Name>                                                                         \
  __device__ inline void load_reduce(Register(&r)[1], const void* address) {                    \
    asm volatile("%2 %0, [%1];" : "=" letter(r[0]) : "l"(address), "C"(Name::text) : "memory"); \
  }                                                                                             \
  template <class Name>                                                                         \
  __device__ inline void send(void* address, const Register(&r)[1]) {                           \
    asm volatile("%2 [%0], %1;" ::"l"(address), letter(r[0]), "C"(Name::text) : "memory");      \
  }
#define CUVMM_MULTIMEM_TWO(Register, letter)                                                                   \
  template <class Name>                                                                                        \
  __device__ inline void load_reduce(Register(&r)[2], const void* address) {                                   \
    asm volatile("%3 {%0, %1}, [%2];"                                                                          \
                 : "=" letter(r[0]), "=" letter(r[1])                                                          \
                 : "l"(address), "C"(Name::text)                                                               \
                 : "memory");                                                                                  \
  }                                                                                                            \
  template <class Name>                                                                                        \
  __device__ inline void send(void* address, const Register(&r)[2]) {                                          \
    asm volatile("%3 [%0], {%1, %2};" ::"l"(address), letter(r[0]), letter(r[1]), "C"(Name::text) : "memory"); \
  }
#define CUVMM_MULTIMEM_FOUR(Register, letter)                                                                         \
  template <class Name>                                                                                               \
  __device__ inline void load_reduce(Register(&r)[4], const void* address) {                                          \
    asm volatile("%5 {%0, %1, %2, %3}, [%4];"                                                                         \
                 : "=" letter(r[0]), "=" letter(r[1]), "=" letter(r[2]), "=" letter(r[3])                             \
                 : "l"(address), "C"(Name::text)                                                                      \
                 : "memory");                                                                                         \
  }                                                                                                                   \
  template <class Name>                                                                                               \
  __device__ inline void send(void* address, const Register(&r)[4]) {                                                 \
    asm volatile("%5 [%0], {%1, %2, %3, %4};" ::"l"(address), letter(r[0]), letter(r[1]), letter(r[2]), letter(r[3]), \
                 "C"(Name::text)                                                                                      \
                 : "memory");                                                                                         \
  }
#define CUVMM_MULTIMEM_EIGHT(Register, letter)                                                                       \
  template <class Name>                                                                                              \
  __device__ inline void load_reduce(Register(&r)[8], const void* address) {                                         \
    asm volatile("%9 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"                                                        \
                 : "=" letter(r[0]), "=" letter(r[1]), "=" letter(r[2]), "=" letter(r[3]), "=" letter(r[4]),         \
                   "=" letter(r[5]), "=" letter(r[6]), "=" letter(r[7])                                              \
                 : "l"(address), "C"(Name::text)                                                                     \
                 : "memory");                                                                                        \
  }                                                                                                                  \
  template <class Name>                                                                                              \
  __device__ inline void send(void* address, const Register(&r)[8]) {                                                \
    asm volatile("%9 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"l"(address), letter(r[0]), letter(r[1]),            \
                 letter(r[2]), letter(r[3]), letter(r[4]), letter(r[5]), letter(r[6]), letter(r[7]), "C"(Name::text) \
                 : "memory");                                                                                        \
  }
CUVMM_MULTIMEM_TWO(std::uint16_t, "h")
CUVMM_MULTIMEM_FOUR(std::uint16_t, "h")
CUVMM_MULTIMEM_EIGHT(std::uint16_t, "h")
CUVMM_MULTIMEM_ONE(std::uint32_t, "r")
CUVMM_MULTIMEM_TWO(std::uint32_t, "r")
CUVMM_MULTIMEM_FOUR(std::uint32_t, "r")
CUVMM_MULTIMEM_ONE(std::uint64_t, "l")
CUVMM_MULTIMEM_ONE(float, "f")
CUVMM_MULTIMEM_TWO(float, "f")
CUVMM_MULTIMEM_FOUR(float, "f")
CUVMM_MULTIMEM_ONE(double, "d")
#undef CUVMM_MULTIMEM_ONE
#undef CUVMM_MULTIMEM_TWO
#undef CUVMM_MULTIMEM_FOUR
#undef CUVMM_MULTIMEM_EIGHT

template <class Name, class T, int width>
__device__ inline void send_values(void* address, const T (&values)[width]) {
  using Register = typename RegisterOf<T>::Type;
  Register registers[width];
  CUVMM_UNROLL
  for (int i = 0; i < width; ++i) registers[i] = bits_as<Register>(values[i]);
  send<Name>(address, registers);
}

}  // namespace detail

// The values at the same place of every device's memory, combined.
template <Operation operation, Order order = Order::relaxed, Scope scope = Scope::system,
          Accumulation accumulation = Accumulation::own, class T, int width>
__device__ inline Vector<T, width> multimem_load_reduce(const Vector<T, width>* multicast) {
  require_multimem_load_reduce<operation, order, scope, accumulation, T, width>();
  using Name = detail::InstructionName<detail::LoadReduceForm<operation, order, scope, accumulation, T, width>>;
  typename detail::RegisterOf<T>::Type registers[width];
  detail::load_reduce<Name>(registers, multicast);
  Vector<T, width> result;
  CUVMM_UNROLL
  for (int i = 0; i < width; ++i) result.values[i] = bits_as<T>(registers[i]);
  return result;
}
template <Operation operation, Order order = Order::relaxed, Scope scope = Scope::system,
          Accumulation accumulation = Accumulation::own, class T>
__device__ inline T multimem_load_reduce(const T* multicast) {
  const auto* const vector = reinterpret_cast<const Vector<T, 1>*>(multicast);
  return multimem_load_reduce<operation, order, scope, accumulation>(vector).values[0];
}

// Writes the value to the same place of every device's memory.
template <Order order = Order::relaxed, Scope scope = Scope::system, class T, int width>
__device__ inline void multimem_store(Vector<T, width>* multicast, const Vector<T, width>& value) {
  require_multimem_store<order, scope, T, width>();
  detail::send_values<detail::InstructionName<detail::StoreForm<order, scope, T, width>>>(multicast, value.values);
}
template <Order order = Order::relaxed, Scope scope = Scope::system, class T>
__device__ inline void multimem_store(T* multicast, const T& value) {
  multimem_store<order, scope>(reinterpret_cast<Vector<T, 1>*>(multicast), Vector<T, 1>{{value}});
}

// Combines the value into the same place of every device's memory.
template <Operation operation, Order order = Order::relaxed, Scope scope = Scope::system, class T, int width>
__device__ inline void multimem_reduce(Vector<T, width>* multicast, const Vector<T, width>& value) {
  require_multimem_reduce<operation, order, scope, T, width>();
  detail::send_values<detail::InstructionName<detail::ReduceForm<operation, order, scope, T, width>>>(multicast,
                                                                                                      value.values);
}
template <Operation operation, Order order = Order::relaxed, Scope scope = Scope::system, class T>
__device__ inline void multimem_reduce(T* multicast, const T& value) {
  multimem_reduce<operation, order, scope>(reinterpret_cast<Vector<T, 1>*>(multicast), Vector<T, 1>{{value}});
}

}  // namespace cuvmm::gpu
