// The memory policy of emulated devices (cuvmm/gpu/memory_policy.cuh): what device code that is written over a policy
// runs on where an emulated device launches it. Pointers hold device addresses, which are never followed as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuvmm/gpu/host_memory.cuh"
#include "emulator/host_kernel.hpp"
#include "emulator/multimem.hpp"

namespace cuvmm::emulator {

// Multicast addresses by emulated multimem.
class DeviceMulticast final : public gpu::HostMulticast {
 public:
  explicit DeviceMulticast(DeviceMemory& memory) noexcept : memory_(memory) {}

  void load_reduce(const gpu::MultimemAccess& access, const void* multicast, void* result) const override {
    const multimem::Form form = form_of(access, multimem::Instruction::load_reduce);
    multimem::load_reduce(memory_.read_multicast(bits_of(multicast), bytes_of(form)), 0, form, result);
  }
  void store(const gpu::MultimemAccess& access, void* multicast, const void* value) const override {
    const multimem::Form form = form_of(access, multimem::Instruction::store);
    multimem::store(memory_.write_multicast(bits_of(multicast), bytes_of(form)), 0, form, value);
  }
  void reduce(const gpu::MultimemAccess& access, void* multicast, const void* value) const override {
    const multimem::Form form = form_of(access, multimem::Instruction::reduce);
    multimem::reduce(memory_.write_multicast(bits_of(multicast), bytes_of(form)), 0, form, value);
  }

 private:
  static std::uint64_t bits_of(const void* address) noexcept { return reinterpret_cast<std::uintptr_t>(address); }
  // The same instruction in the emulator's words.
  static multimem::Form form_of(const gpu::MultimemAccess& access, multimem::Instruction instruction) noexcept;

  DeviceMemory& memory_;
};

class DeviceMemoryPolicy {
 public:
  explicit DeviceMemoryPolicy(DeviceMemory& memory) noexcept : memory_(memory), multicast_(memory) {}
  DeviceMemoryPolicy(const DeviceMemoryPolicy&) = delete;
  DeviceMemoryPolicy& operator=(const DeviceMemoryPolicy&) = delete;
  DeviceMemoryPolicy(DeviceMemoryPolicy&&) = delete;
  DeviceMemoryPolicy& operator=(DeviceMemoryPolicy&&) = delete;
  ~DeviceMemoryPolicy() = default;

  template <class T>
  [[nodiscard]] T load(const T* address) const {
    return plain_.load(read(address));
  }
  template <class T>
  void store(T* address, std::type_identity_t<T> value) const {
    plain_.store(write(address), value);
  }
  [[nodiscard]] gpu::Pack load_volatile(const gpu::Pack* address) const { return plain_.load_volatile(read(address)); }
  [[nodiscard]] std::uint32_t load_acquire(const std::uint32_t* address) const {
    return plain_.load_acquire(read(address));
  }
  void store_release(std::uint32_t* address, std::uint32_t value) const { plain_.store_release(write(address), value); }
  [[nodiscard]] gpu::Line load_line(const gpu::Line* address) const { return plain_.load_line(read(address)); }
  void store_line(gpu::Line* address, const gpu::Line& line) const { plain_.store_line(write(address), line); }
  void fetch_or(std::uint32_t* address, std::uint32_t bits) const { plain_.fetch_or(write(address), bits); }

  template <gpu::Operation operation, gpu::Order order, gpu::Scope scope, gpu::Accumulation accumulation, class Value>
  [[nodiscard]] Value multimem_load_reduce(const Value* multicast) const {
    return plain_.multimem_load_reduce<operation, order, scope, accumulation>(multicast);
  }
  template <gpu::Order order, gpu::Scope scope, class Value>
  void multimem_store(Value* multicast, const Value& value) const {
    plain_.multimem_store<order, scope>(multicast, value);
  }
  template <gpu::Operation operation, gpu::Order order, gpu::Scope scope, class Value>
  void multimem_reduce(Value* multicast, const Value& value) const {
    plain_.multimem_reduce<operation, order, scope>(multicast, value);
  }

  void alias_fence() const { memory_.alias_fence(); }
  [[nodiscard]] std::uint64_t nanoseconds() const { return plain_.nanoseconds(); }
  void pause() const { memory_.give_way(); }

 private:
  template <class T>
  [[nodiscard]] const T* read(const T* address) const {
    return reinterpret_cast<const T*>(memory_.read(reinterpret_cast<std::uintptr_t>(address), sizeof(T)));
  }
  template <class T>
  [[nodiscard]] T* write(T* address) const {
    return reinterpret_cast<T*>(memory_.write(reinterpret_cast<std::uintptr_t>(address), sizeof(T)));
  }

  DeviceMemory& memory_;
  const DeviceMulticast multicast_;
  const gpu::HostMemory plain_{&multicast_};
};
static_assert(gpu::MemoryPolicy<DeviceMemoryPolicy>);

}  // namespace cuvmm::emulator
