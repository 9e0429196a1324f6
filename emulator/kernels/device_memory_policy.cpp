#include "emulator/kernels/device_memory_policy.hpp"

namespace cuvmm::emulator {
namespace {

multimem::Type type_of(gpu::MultimemElement element) noexcept {
  using Element = gpu::MultimemElement;
  switch (element) {
    case Element::u32:
      return multimem::Type::u32;
    case Element::u64:
      return multimem::Type::u64;
    case Element::s32:
      return multimem::Type::s32;
    case Element::s64:
      return multimem::Type::s64;
    case Element::b32:
      return multimem::Type::b32;
    case Element::b64:
      return multimem::Type::b64;
    case Element::f16:
      return multimem::Type::f16;
    case Element::bf16:
      return multimem::Type::bf16;
    case Element::f16x2:
      return multimem::Type::f16x2;
    case Element::bf16x2:
      return multimem::Type::bf16x2;
    case Element::f32:
      return multimem::Type::f32;
    case Element::f64:
      break;
  }
  return multimem::Type::f64;
}

multimem::Operation operation_of(gpu::Operation operation) noexcept {
  switch (operation) {
    case gpu::Operation::add:
      return multimem::Operation::add;
    case gpu::Operation::min:
      return multimem::Operation::minimum;
    case gpu::Operation::max:
      return multimem::Operation::maximum;
    case gpu::Operation::bit_and:
      return multimem::Operation::bit_and;
    case gpu::Operation::bit_or:
      return multimem::Operation::bit_or;
    case gpu::Operation::bit_xor:
      break;
  }
  return multimem::Operation::bit_xor;
}

multimem::Order order_of(gpu::Order order) noexcept {
  switch (order) {
    case gpu::Order::weak:
      return multimem::Order::weak;
    case gpu::Order::relaxed:
      return multimem::Order::relaxed;
    case gpu::Order::acquire:
      return multimem::Order::acquire;
    case gpu::Order::release:
      break;
  }
  return multimem::Order::release;
}

}  // namespace

multimem::Form DeviceMulticast::form_of(const gpu::MultimemAccess& access, multimem::Instruction instruction) noexcept {
  multimem::Form form;
  form.instruction = instruction;
  form.type = type_of(access.element);
  form.operation = operation_of(access.operation);
  form.vector = static_cast<unsigned>(access.width);
  form.order = order_of(access.order);
  form.accumulation =
      access.accumulation == gpu::Accumulation::single ? multimem::Accumulation::f32 : multimem::Accumulation::native;
  return form;
}

}  // namespace cuvmm::emulator
