// What a trace is replayed through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "cuvmm/driver.hpp"
#include "cuvmm/result.hpp"
#include "cuvmm/units.hpp"

namespace cuvmm::replay {

// Bytes at addresses.
struct Extent {
  DeviceAddress address{};
  std::size_t bytes = 0;
};

// Gives out memory of device 0. Memory is freed in the stream that it was allocated in; streams have the numbers of the
// trace. For one thread.
class Allocator {
 public:
  Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  Allocator(Allocator&&) = delete;
  Allocator& operator=(Allocator&&) = delete;
  virtual ~Allocator() = default;  // gives back all that it holds

  // A failure of the kind out_of_device_memory where there is no memory, also after what was kept had been given back.
  // Throws cuvmm::Error for any other.
  [[nodiscard]] virtual Result<DeviceAddress> allocate(std::size_t bytes, std::uint32_t stream) = 0;
  virtual void free(DeviceAddress address, std::uint32_t stream) = 0;

  // Physical memory that it has of the device at this moment, in use or not. Makes no call that counts.
  [[nodiscard]] virtual std::uint64_t physical_bytes() const = 0;

  // Where that is, if the allocator knows; else nothing.
  [[nodiscard]] virtual std::vector<Extent> held() const { return {}; }
};

// What an allocator works with.
struct Bench {
  Driver driver;              // whose calls are counted
  Driver aside;               // the same one, to look at things without being counted
  std::uint32_t streams = 1;  // how many the trace has
};

struct AllocatorEntry {
  std::string_view name;
  std::string_view description;
  std::unique_ptr<Allocator> (*make)(const Bench&);
};

// All that there are, in the order in which they are replayed.
[[nodiscard]] const std::vector<AllocatorEntry>& all_allocators();

[[nodiscard]] std::unique_ptr<Allocator> make_plain_allocator(const Bench& bench);
[[nodiscard]] std::unique_ptr<Allocator> make_ordered_allocator(const Bench& bench);
[[nodiscard]] std::unique_ptr<Allocator> make_caching_allocator(const Bench& bench);
[[nodiscard]] std::unique_ptr<Allocator> make_pool_allocator(const Bench& bench);

}  // namespace cuvmm::replay
