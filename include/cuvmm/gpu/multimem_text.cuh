// The names of multimem instructions, put together when the program is compiled.
#pragma once

#include <cstddef>
#include <utility>

#include "cuvmm/gpu/multimem_forms.cuh"

namespace cuvmm::gpu::detail {

struct ShortText {
  char characters[64] = {};
  std::size_t size = 0;

  constexpr void append(const char* text) noexcept {
    while (*text != '\0') characters[size++] = *text++;
  }
};

constexpr const char* text_of(Order order) noexcept {
  switch (order) {
    case Order::weak:
      return ".weak";
    case Order::relaxed:
      return ".relaxed";
    case Order::acquire:
      return ".acquire";
    case Order::release:
      return ".release";
  }
  return "";
}

constexpr const char* text_of(Scope scope) noexcept {
  switch (scope) {
    case Scope::none:
      return "";
    case Scope::block:
      return ".cta";
    case Scope::cluster:
      return ".cluster";
    case Scope::device:
      return ".gpu";
    case Scope::system:
      return ".sys";
  }
  return "";
}

constexpr const char* text_of(Operation operation) noexcept {
  switch (operation) {
    case Operation::add:
      return ".add";
    case Operation::min:
      return ".min";
    case Operation::max:
      return ".max";
    case Operation::bit_and:
      return ".and";
    case Operation::bit_or:
      return ".or";
    case Operation::bit_xor:
      return ".xor";
  }
  return "";
}

constexpr const char* text_of_width(int width) noexcept {
  return width == 1 ? "" : width == 2 ? ".v2" : width == 4 ? ".v4" : ".v8";
}

template <class T>
constexpr const char* text_of_type() noexcept;
template <>
constexpr const char* text_of_type<std::uint32_t>() noexcept {
  return ".u32";
}
template <>
constexpr const char* text_of_type<std::uint64_t>() noexcept {
  return ".u64";
}
template <>
constexpr const char* text_of_type<std::int32_t>() noexcept {
  return ".s32";
}
template <>
constexpr const char* text_of_type<std::int64_t>() noexcept {
  return ".s64";
}
template <>
constexpr const char* text_of_type<Bits32>() noexcept {
  return ".b32";
}
template <>
constexpr const char* text_of_type<Bits64>() noexcept {
  return ".b64";
}
template <>
constexpr const char* text_of_type<float16>() noexcept {
  return ".f16";
}
template <>
constexpr const char* text_of_type<bfloat16>() noexcept {
  return ".bf16";
}
template <>
constexpr const char* text_of_type<Float16Pair>() noexcept {
  return ".f16x2";
}
template <>
constexpr const char* text_of_type<BFloat16Pair>() noexcept {
  return ".bf16x2";
}
template <>
constexpr const char* text_of_type<float>() noexcept {
  return ".f32";
}
template <>
constexpr const char* text_of_type<double>() noexcept {
  return ".f64";
}

template <Operation operation, Order order, Scope scope, Accumulation accumulation, class T, int width>
struct LoadReduceForm {
  static constexpr ShortText compose() noexcept {
    ShortText text;
    text.append("multimem.ld_reduce");
    text.append(text_of(order));
    text.append(text_of(scope));
    text.append(".global");
    text.append(text_of(operation));
    if (accumulation == Accumulation::single) text.append(".acc::f32");
    text.append(text_of_width(width));
    text.append(text_of_type<T>());
    return text;
  }
};

template <Order order, Scope scope, class T, int width>
struct StoreForm {
  static constexpr ShortText compose() noexcept {
    ShortText text;
    text.append("multimem.st");
    text.append(text_of(order));
    text.append(text_of(scope));
    text.append(".global");
    text.append(text_of_width(width));
    text.append(text_of_type<T>());
    return text;
  }
};

template <Operation operation, Order order, Scope scope, class T, int width>
struct ReduceForm {
  static constexpr ShortText compose() noexcept {
    ShortText text;
    text.append("multimem.red");
    text.append(text_of(order));
    text.append(text_of(scope));
    text.append(".global");
    text.append(text_of(operation));
    text.append(text_of_width(width));
    text.append(text_of_type<T>());
    return text;
  }
};

// An array of characters and nothing else is what an asm statement takes for a part of its text.
template <class Form, class Indexes = std::make_index_sequence<Form::compose().size>>
struct InstructionName;
template <class Form, std::size_t... index>
struct InstructionName<Form, std::index_sequence<index...>> {
  static constexpr char text[] = {Form::compose().characters[index]..., '\0'};
};

}  // namespace cuvmm::gpu::detail
