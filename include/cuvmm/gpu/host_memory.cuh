// The memory policy of CPUs (memory_policy.cuh): ranks are threads, or processes, that share ordinary memory; what
// stands behind multicast addresses is given. For plain C++ compilers.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <type_traits>

#include "cuvmm/gpu/host_multicast.cuh"
#include "cuvmm/gpu/memory_policy.cuh"

namespace cuvmm::gpu {

// Thread-safe, as far as the memory is.
class HostMemory {
 public:
  // Without `multicast` nothing may be accessed at a multicast address.
  explicit HostMemory(const HostMulticast* multicast = nullptr) noexcept : multicast_(multicast) {}

  // Copies of bytes, since what lies there may be of another type than it is moved as.
  template <class T>
  [[nodiscard]] T load(const T* address) const {
    T value{};
    std::memcpy(&value, address, sizeof(T));
    return value;
  }
  template <class T>
  void store(T* address, std::type_identity_t<T> value) const {
    std::memcpy(address, &value, sizeof(T));
  }
  [[nodiscard]] Pack load_volatile(const Pack* address) const {
    Pack pack{};
    for (int i = 0; i < 4; ++i) pack.values[i] = __atomic_load_n(&address->values[i], __ATOMIC_RELAXED);
    return pack;
  }
  [[nodiscard]] std::uint32_t load_acquire(const std::uint32_t* address) const {
    return __atomic_load_n(address, __ATOMIC_ACQUIRE);
  }
  // NOLINTNEXTLINE(readability-non-const-parameter): the built-in function writes there
  void store_release(std::uint32_t* address, std::uint32_t value) const {
    __atomic_store_n(address, value, __ATOMIC_RELEASE);
  }
  // A GPU's kernels are ordered where one ends and the next begins. Here nothing is there to order what two calls do,
  // so that lines acquire and release.
  [[nodiscard]] Line load_line(const Line* address) const {
    const auto* const halves = reinterpret_cast<const std::uint64_t*>(address);
    const std::uint64_t first = __atomic_load_n(halves, __ATOMIC_ACQUIRE);
    const std::uint64_t second = __atomic_load_n(halves + 1, __ATOMIC_ACQUIRE);
    return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(first >> 32),
            static_cast<std::uint32_t>(second), static_cast<std::uint32_t>(second >> 32)};
  }
  void store_line(Line* address, const Line& line) const {
    auto* const halves = reinterpret_cast<std::uint64_t*>(address);
    __atomic_store_n(halves, std::uint64_t{line.first_flag} << 32 | line.first, __ATOMIC_RELEASE);
    __atomic_store_n(halves + 1, std::uint64_t{line.second_flag} << 32 | line.second, __ATOMIC_RELEASE);
  }
  // NOLINTNEXTLINE(readability-non-const-parameter): likewise
  void fetch_or(std::uint32_t* address, std::uint32_t bits) const {
    __atomic_fetch_or(address, bits, __ATOMIC_RELAXED);
  }

  template <Operation operation, Order order, Scope scope, Accumulation accumulation, class T, int width>
  [[nodiscard]] Vector<T, width> multimem_load_reduce(const Vector<T, width>* multicast) const {
    require_multimem_load_reduce<operation, order, scope, accumulation, T, width>();
    Vector<T, width> result{};
    multicast_->load_reduce({multimem_element<T>, width, operation, order, scope, accumulation}, multicast, &result);
    return result;
  }
  template <Operation operation, Order order, Scope scope, Accumulation accumulation, class T>
  [[nodiscard]] T multimem_load_reduce(const T* multicast) const {
    const auto* const vector = reinterpret_cast<const Vector<T, 1>*>(multicast);
    return multimem_load_reduce<operation, order, scope, accumulation>(vector).values[0];
  }
  template <Order order, Scope scope, class T, int width>
  void multimem_store(Vector<T, width>* multicast, const Vector<T, width>& value) const {
    require_multimem_store<order, scope, T, width>();
    multicast_->store({multimem_element<T>, width, Operation::add, order, scope, Accumulation::own}, multicast, &value);
  }
  template <Order order, Scope scope, class T>
  void multimem_store(T* multicast, const T& value) const {
    multimem_store<order, scope>(reinterpret_cast<Vector<T, 1>*>(multicast), Vector<T, 1>{{value}});
  }
  template <Operation operation, Order order, Scope scope, class T, int width>
  void multimem_reduce(Vector<T, width>* multicast, const Vector<T, width>& value) const {
    require_multimem_reduce<operation, order, scope, T, width>();
    multicast_->reduce({multimem_element<T>, width, operation, order, scope, Accumulation::own}, multicast, &value);
  }
  template <Operation operation, Order order, Scope scope, class T>
  void multimem_reduce(T* multicast, const T& value) const {
    multimem_reduce<operation, order, scope>(reinterpret_cast<Vector<T, 1>*>(multicast), Vector<T, 1>{{value}});
  }

  // A CPU's caches know which addresses are one memory.
  void alias_fence() const {}
  [[nodiscard]] std::uint64_t nanoseconds() const {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
  }
  void pause() const { std::this_thread::yield(); }

 private:
  const HostMulticast* multicast_;
};
static_assert(MemoryPolicy<HostMemory>);

// A block of one thread. A rank runs its blocks one after another: block b of all ranks meet, then block b + 1.
class HostBlock {
 public:
  HostBlock(std::uint32_t index, std::uint32_t count) noexcept : index_(index), count_(count) {}

  [[nodiscard]] std::uint32_t thread() const noexcept { return 0; }
  [[nodiscard]] std::uint32_t threads() const noexcept { return 1; }
  [[nodiscard]] std::uint32_t index() const noexcept { return index_; }
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  void synchronize() const noexcept {}
  [[nodiscard]] bool any(bool condition) const noexcept { return condition; }

 private:
  std::uint32_t index_;
  std::uint32_t count_;
};

}  // namespace cuvmm::gpu
