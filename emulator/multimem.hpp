// multimem of PTX for kernels that run on the host: what one instruction does to the memory of every device of a team.
//
// Standard library alone; installed beside host_kernel.hpp, and usable without the emulated driver on any
// MulticastWindow.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "host_kernel.hpp"  // beside this file, here and where both are installed

namespace cuvmm::emulator::multimem {

enum class Instruction : unsigned char { load_reduce, store, reduce };
enum class Type : unsigned char { u32, s32, u64, s64, b32, b64, f16, f16x2, bf16, bf16x2, f32, f64 };
enum class Operation : unsigned char { add, minimum, maximum, bit_and, bit_or, bit_xor };  // a store has none
enum class Order : unsigned char { weak, relaxed, acquire, release };
enum class Accumulation : unsigned char { native, f32 };  // .acc::f32
enum class Scope : unsigned char { block, cluster, device, system };

// One instruction with its qualifiers: multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 is
// {load_reduce, Type::f16x2, Operation::add, 4, Order::relaxed, Accumulation::f32}. Scopes differ in nothing here,
// where every access reaches the whole system.
struct Form {
  Instruction instruction = Instruction::load_reduce;
  Type type = Type::f32;
  Operation operation = Operation::add;
  unsigned vector = 1;  // 1: without .v2, .v4 or .v8
  Order order = Order::relaxed;
  Accumulation accumulation = Accumulation::native;
  Scope scope = Scope::system;
};

constexpr bool is_half(Type type) noexcept {
  return type == Type::f16 || type == Type::f16x2 || type == Type::bf16 || type == Type::bf16x2;
}
constexpr bool is_floating(Type type) noexcept {
  return is_half(type) || type == Type::f32 || type == Type::f64;
}

constexpr std::size_t bytes_of(Type type) noexcept {
  switch (type) {
    case Type::f16:
    case Type::bf16:
      return 2;
    case Type::u64:
    case Type::s64:
    case Type::b64:
    case Type::f64:
      return 8;
    default:
      return 4;
  }
}

// How much one instruction touches in each device's memory, of which its address must be a multiple.
constexpr std::size_t bytes_of(const Form& form) noexcept {
  return bytes_of(form.type) * form.vector;
}

namespace detail {

constexpr std::string_view why_not_vector(Type type, unsigned vector) noexcept {
  if (vector != 1 && vector != 2 && vector != 4 && vector != 8) return "a vector has 2, 4 or 8 elements";
  if (vector == 1)
    return type == Type::f16 || type == Type::bf16 ? "single f16 and bf16 exist as vectors alone (.v2, .v4, .v8)" : "";
  if (!is_floating(type)) return "integers have no vectors";
  if (type == Type::f64) return "f64 has no vectors";
  if (bytes_of(type) * vector > 16) return "a vector has at most 128 bits";
  return "";
}

constexpr std::string_view why_not_operation(Instruction instruction, Type type, Operation operation,
                                             unsigned vector) noexcept {
  const bool bits = type == Type::b32 || type == Type::b64;
  switch (operation) {
    case Operation::bit_and:
    case Operation::bit_or:
    case Operation::bit_xor:
      return bits ? "" : "and, or and xor are of b32 and b64";
    case Operation::add:
      if (bits) return "b32 and b64 have and, or and xor alone";
      return type == Type::s64 ? "there is no add of s64; that of u64 is the same" : "";
    case Operation::minimum:
    case Operation::maximum:
      break;
  }
  if (bits) return "b32 and b64 have and, or and xor alone";
  if (type == Type::f32 || type == Type::f64) return "f32 and f64 have no min and max";
  if (instruction == Instruction::reduce && (type == Type::f16x2 || type == Type::bf16x2) && vector == 1)
    return "red has min and max of f16x2 and bf16x2 as vectors alone";
  return "";
}

constexpr std::string_view why_not_order(Instruction instruction, Order order) noexcept {
  switch (instruction) {
    case Instruction::load_reduce:
      return order == Order::release ? "ld_reduce is weak, relaxed or acquire" : "";
    case Instruction::store:
      return order == Order::acquire ? "st is weak, relaxed or release" : "";
    case Instruction::reduce:
      return order == Order::relaxed || order == Order::release ? "" : "red is relaxed or release";
  }
  return "";
}

}  // namespace detail

// Why PTX has no such instruction; empty if it has (PTX 8.1, .acc::f32 PTX 8.2, for sm_90).
constexpr std::string_view why_not(const Form& form) noexcept {
  if (const auto why = detail::why_not_vector(form.type, form.vector); !why.empty()) return why;
  if (const auto why = detail::why_not_order(form.instruction, form.order); !why.empty()) return why;
  if (form.instruction != Instruction::store)
    if (const auto why = detail::why_not_operation(form.instruction, form.type, form.operation, form.vector);
        !why.empty())
      return why;
  if (form.accumulation == Accumulation::f32 &&
      (form.instruction != Instruction::load_reduce || form.operation != Operation::add || !is_half(form.type)))
    return ".acc::f32 is of ld_reduce, of add, and of f16 and bf16";
  return "";
}

// What a kernel cannot survive: thrown out of its function, it makes the launch fault as on a device.
class Fault : public std::runtime_error {
 public:
  enum class Kind { misaligned, outside };
  Fault(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  [[nodiscard]] Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

// Each executes one instruction at `offset` bytes into the window; `value` and `result` have bytes_of(form) bytes, laid
// out as in memory. The instruction of the form is the function's. Every element is loaded, stored or changed at once
// as far as others see it, a vector element by element; the order in which ld_reduce adds is that of the team. f16 and
// bf16 are rounded to the nearest, ties to even: after each addition, or with Accumulation::f32 once, from the sum in
// f32. A NaN loses against a number in min and max. Thread-safe, also between processes.
//
// Throws std::invalid_argument for a form that PTX does not have, Fault for an offset outside the window, or that is no
// multiple of bytes_of(form).
void load_reduce(const MulticastWindow& window, std::uint64_t offset, const Form& form, void* result);
void store(const MulticastWindow& window, std::uint64_t offset, const Form& form, const void* value);
void reduce(const MulticastWindow& window, std::uint64_t offset, const Form& form, const void* value);

// 16-bit floating-point numbers as their bits: to f32 without loss, and back to the nearest, ties to even.
[[nodiscard]] float f32_of_f16(std::uint16_t bits) noexcept;
[[nodiscard]] float f32_of_bf16(std::uint16_t bits) noexcept;
[[nodiscard]] std::uint16_t f16_of(float value) noexcept;
[[nodiscard]] std::uint16_t bf16_of(float value) noexcept;

// The accesses of one kernel's function to its views, by their numbers, with a form that is checked while it compiles:
//
//   Accesses memory(call);
//   const auto sum = memory.load_reduce<Form{.type = Type::f32, .vector = 4}, float>(0, offset);  // four numbers
//   memory.reduce<Form{.instruction = Instruction::reduce, .type = Type::u32, .order = Order::release}>(0, 0, {1U});
//   memory.alias_fence();
//   while (memory.load<std::uint32_t>(1, 0) < arrived) ...   // the same memory at its own address
//
// Where the driver checks for alias fences, it sees what is done through this alone: a read of what was written through
// another address of the same memory, with no alias_fence() in between on either side, is told by the rule ALIAS-FENCE.
class Accesses {
 public:
  explicit Accesses(const KernelCall& call) : call_(call) {}

  template <Form form, class Value>
  [[nodiscard]] auto load_reduce(std::size_t view, std::uint64_t offset) const {
    constexpr Form meant = as<Instruction::load_reduce>(form);
    static_assert(why_not(meant).empty(), "PTX has no such multimem.ld_reduce");
    std::array<Value, values<meant, Value>()> result{};
    multimem::load_reduce(window(view), offset, meant, result.data());
    read(view, offset, sizeof result);
    return result;
  }
  template <Form form, class Value, std::size_t count>
  void store(std::size_t view, std::uint64_t offset, const std::array<Value, count>& value) const {
    constexpr Form meant = as<Instruction::store>(form);
    static_assert(why_not(meant).empty(), "PTX has no such multimem.st");
    static_assert(values<meant, Value>() == count);
    const MulticastWindow& to = window(view);
    wrote(view, offset, sizeof value);
    multimem::store(to, offset, meant, value.data());
  }
  template <Form form, class Value, std::size_t count>
  void reduce(std::size_t view, std::uint64_t offset, const std::array<Value, count>& value) const {
    constexpr Form meant = as<Instruction::reduce>(form);
    static_assert(why_not(meant).empty(), "PTX has no such multimem.red");
    static_assert(values<meant, Value>() == count);
    const MulticastWindow& to = window(view);
    wrote(view, offset, sizeof value);
    multimem::reduce(to, offset, meant, value.data());
  }

  // Ordinary accesses to a view that is no multicast address: ld, st and red.add of numbers of 1, 2, 4 or 8 bytes.
  template <class Value>
  [[nodiscard]] Value load(std::size_t view, std::uint64_t offset, Order order = Order::acquire) const {
    const Value value = at<Value>(view, offset).load(standard(order));
    read(view, offset, sizeof value);
    return value;
  }
  template <class Value>
  void store_here(std::size_t view, std::uint64_t offset, Value value, Order order = Order::release) const {
    const auto to = at<Value>(view, offset);
    wrote(view, offset, sizeof value);
    to.store(value, standard(order));
  }
  template <class Value>
  void add_here(std::size_t view, std::uint64_t offset, Value value, Order order = Order::release) const {
    const auto to = at<Value>(view, offset);
    wrote(view, offset, sizeof value);
    to.fetch_add(value, standard(order));
  }

  // fence.proxy.alias: accesses through one address before it are ordered with those through another behind it.
  void alias_fence() const {
    if (call_.aliases != nullptr) call_.aliases->alias_fence();
  }

  [[nodiscard]] const MulticastWindow& window(std::size_t view) const {
    if (view >= call_.multicasts.size() || call_.multicasts[view].replicas.empty())
      throw Fault(Fault::Kind::outside, "multimem is given a view that is no multicast address");
    return call_.multicasts[view];
  }

 private:
  template <Instruction instruction>
  static constexpr Form as(Form form) noexcept {
    form.instruction = instruction;
    return form;
  }
  template <Form form, class Value>
  static constexpr std::size_t values() noexcept {
    static_assert(bytes_of(form) % sizeof(Value) == 0, "the values do not fill the instruction's bytes");
    return bytes_of(form) / sizeof(Value);
  }
  static constexpr std::memory_order standard(Order order) noexcept {
    return order == Order::acquire   ? std::memory_order_acquire
           : order == Order::release ? std::memory_order_release
                                     : std::memory_order_relaxed;
  }
  template <class Value>
  [[nodiscard]] std::atomic_ref<Value> at(std::size_t view, std::uint64_t offset) const {
    std::byte* const begin = view < call_.windows.size() ? call_.windows[view] : nullptr;
    if (begin == nullptr) throw Fault(Fault::Kind::outside, "an ordinary access to a multicast address");
    if (reinterpret_cast<std::uintptr_t>(begin + offset) % sizeof(Value) != 0)
      throw Fault(Fault::Kind::misaligned, "an address is no multiple of the size of the access");
    return std::atomic_ref<Value>(*reinterpret_cast<Value*>(begin + offset));
  }
  void wrote(std::size_t view, std::uint64_t offset, std::uint64_t bytes) const {
    if (call_.aliases != nullptr) call_.aliases->wrote(view, offset, bytes);
  }
  void read(std::size_t view, std::uint64_t offset, std::uint64_t bytes) const {
    if (call_.aliases != nullptr) call_.aliases->reads(view, offset, bytes);
  }

  const KernelCall& call_;
};

}  // namespace cuvmm::emulator::multimem
