// A pool as a memory resource of CCCL (cuda::mr), for those who have its headers: those of a CUDA toolkit 13.0 or
// newer.
//
//   #define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE  // for CCCL 3.0
//   auto pool = std::make_shared<cuvmm::Pool>(cuvmm::Pool::create(driver));
//   cuvmm::PoolResource resource(pool);
//   static_assert(cuda::mr::async_resource_with<cuvmm::PoolResource, cuda::mr::device_accessible>);  // CCCL 3.0
//   static_assert(cuda::mr::resource_with<cuvmm::PoolResource, cuda::mr::device_accessible>);        // and later
#pragma once

#if !__has_include(<cuda/memory_resource>) || !__has_include(<cuda/stream_ref>)
#error "cuvmm/pool/cccl_resource.hpp needs CCCL: the folders include and include/cccl of a CUDA toolkit 13.0 or newer"
#endif
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#if CCCL_VERSION < 3001000 && !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#error "CCCL 3.0 has cuda::mr where LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE is defined, before its headers"
#endif

#include <cstddef>
#include <memory>
#include <utility>

#include "cuvmm/pool/synchronous_allocations.hpp"

namespace cuvmm {

// Satisfies cuda::mr::async_resource of CCCL 3.0, and cuda::mr::resource of later ones, which gave the functions other
// names; with the property device_accessible. Copies share the pool, and are equal where they share it and are of one
// device. What was allocated in one way is freed in the same way, by this resource or a copy.
//
// 0 bytes are a null pointer, which may be freed. Throws as Pool::allocate, and InvalidUse for an alignment above
// `alignment`. Freeing throws InvalidUse for what was not allocated here. Thread-safe.
class PoolResource {
 public:
  static constexpr std::size_t alignment = 512;  // that all memory has

  // Of the pool's first device, or the named one; throws as SynchronousAllocations::create, and InvalidUse for no pool.
  explicit PoolResource(const std::shared_ptr<Pool>& pool) : PoolResource(pool, first_device(pool)) {}
  PoolResource(const std::shared_ptr<Pool>& pool, DeviceOrdinal device)
      : shared_(std::make_shared<Shared>(pool, device)) {}

  // --- In the order of a stream. Memory may be freed on any stream that comes behind the work that uses it.
  [[nodiscard]] void* allocate(::cuda::stream_ref stream, std::size_t bytes, std::size_t align = alignment) {
    check(align);
    return bytes == 0 ? nullptr : shared_->pool->allocate(bytes, stream.get(), device()).as_pointer();
  }
  void deallocate(::cuda::stream_ref stream, void* pointer, std::size_t /*bytes*/, std::size_t /*align*/ = alignment) {
    if (pointer == nullptr) return;
    if (shared_->synchronous.owns(address_of(pointer))) refuse_order_of_stream(pointer);
    shared_->pool->used_on(address_of(pointer),
                           stream.get());  // nothing, where it is the stream that it was allocated on
    shared_->pool->free(address_of(pointer), stream.get());
  }
  [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t align, ::cuda::stream_ref stream) {
    return allocate(stream, bytes, align);
  }
  [[nodiscard]] void* allocate_async(std::size_t bytes, ::cuda::stream_ref stream) { return allocate(stream, bytes); }
  void deallocate_async(void* pointer, std::size_t bytes, std::size_t align, ::cuda::stream_ref stream) {
    deallocate(stream, pointer, bytes, align);
  }
  void deallocate_async(void* pointer, std::size_t bytes, ::cuda::stream_ref stream) {
    deallocate(stream, pointer, bytes);
  }

  // --- In the order of no stream: work of each may use it at once, and freeing waits for the device.
  [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t align = alignment) {
    check(align);
    return bytes == 0 ? nullptr : shared_->synchronous.allocate(bytes).as_pointer();
  }
  void deallocate_sync(void* pointer, std::size_t /*bytes*/, std::size_t /*align*/ = alignment) {
    if (pointer != nullptr) shared_->synchronous.free(address_of(pointer));
  }
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t align = alignment) { return allocate_sync(bytes, align); }
  void deallocate(void* pointer, std::size_t bytes, std::size_t align = alignment) {
    deallocate_sync(pointer, bytes, align);
  }

  [[nodiscard]] const std::shared_ptr<Pool>& pool() const noexcept { return shared_->pool; }
  [[nodiscard]] DeviceOrdinal device() const noexcept { return shared_->device; }

  friend bool operator==(const PoolResource& a, const PoolResource& b) noexcept {
    return a.pool() == b.pool() && a.device() == b.device();
  }
  friend void get_property(const PoolResource&, ::cuda::mr::device_accessible) noexcept {}

 private:
  struct Shared {
    Shared(std::shared_ptr<Pool> of, DeviceOrdinal at)
        : pool(given(std::move(of))), device(at), synchronous(SynchronousAllocations::create(*pool, at)) {}

    const std::shared_ptr<Pool> pool;
    const DeviceOrdinal device;
    SynchronousAllocations synchronous;
  };

  [[nodiscard]] static DeviceAddress address_of(const void* pointer) noexcept {
    return DeviceAddress{reinterpret_cast<std::uintptr_t>(pointer)};
  }
  [[nodiscard]] static DeviceOrdinal first_device(const std::shared_ptr<Pool>& pool) {
    return given(pool)->options().devices.front();
  }
  [[nodiscard]] static std::shared_ptr<Pool> given(std::shared_ptr<Pool> pool);
  static void check(std::size_t align);
  [[noreturn]] static void refuse_order_of_stream(const void* pointer);
  [[noreturn]] static void refuse(std::string call, std::string arguments, std::string rule, std::string way_out);

  std::shared_ptr<Shared> shared_;
};

inline void PoolResource::check(std::size_t align) {
  if (align <= alignment) return;
  refuse("PoolResource::allocate", "alignment = " + std::to_string(align),
         "Memory of a pool begins at a multiple of 512 bytes, and of no more for sure",
         "Ask for less, or for as much more memory and round the address up");
}

inline std::shared_ptr<Pool> PoolResource::given(std::shared_ptr<Pool> pool) {
  if (pool == nullptr)
    refuse("PoolResource", "pool = nullptr", "A resource gives out the memory of a pool", "Pass one that was made");
  return pool;
}

inline void PoolResource::refuse_order_of_stream(const void* pointer) {
  refuse("PoolResource::deallocate", "address = " + std::to_string(address_of(pointer).value),
         "It was allocated in the order of no stream, so that work of every stream may use it",
         "Free it without a stream, which waits for the device");
}

inline void PoolResource::refuse(std::string call, std::string arguments, std::string rule, std::string way_out) {
  Failure failure;
  failure.kind = ErrorKind::invalid_use;
  failure.call = std::move(call);
  failure.arguments = std::move(arguments);
  failure.rule = std::move(rule);
  failure.way_out = std::move(way_out);
  raise(failure);
}

}  // namespace cuvmm
