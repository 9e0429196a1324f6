// A soak: millions of driver calls by several threads on one emulated machine. It ends with no live object and with as
// much memory, as many mappings and as many descriptors as after a tenth of the calls.
//
//   cuvmm_soak [CALLS [THREADS [SEED]]]
//
// CALLS is 200,000 unless given, or 10,000,000 where CUVMM_TEST_LONG is in the environment.
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../sanitizers.hpp"
#include "emulator/api/emulated_driver.hpp"

namespace {

using namespace cuvmm::abi;
using cuvmm::emulator::api::EmulatedDriver;
using cuvmm::test::sanitized;

constexpr std::size_t granule = std::size_t{2} << 20;
constexpr int devices = 2;

// What the calls are for; each call counts once.
enum class Purpose : unsigned char {
  physical_memory,  // create, release, retain
  addresses,        // reserve, free
  mappings,         // map, unmap
  rights,           // set, get
  copies,           // copies and memsets, synchronous and not
  streams,          // create, destroy, synchronize, query
  events,           // create, record, wait, query, destroy
  queries,          // pointer attributes, address ranges, free memory
  allocations,      // cuMemAlloc and page-locked host memory
  exchange,         // export, import, dma-bufs
};
constexpr std::array<const char*, 10> purposes = {"physical memory", "addresses",        "mappings", "rights",
                                                  "copies, memsets", "streams",          "events",   "queries",
                                                  "allocations",     "export and import"};

struct Figures {
  std::uint64_t resident_bytes = 0;
  std::size_t mappings = 0;
  std::size_t descriptors = 0;
};

Figures measure(EmulatedDriver& driver) {
  driver.machine().collect_closed_exports();  // an export notices by itself when the next one is made
  ::malloc_trim(0);
  Figures figures;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) figures.resident_bytes = std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++figures.mappings;
  for (int descriptor = 0; descriptor < 1024; ++descriptor)
    if (::access(fmt::format("/proc/self/fd/{}", descriptor).c_str(), F_OK) == 0) ++figures.descriptors;
  return figures;
}

std::string to_string(const Figures& figures) {
  return fmt::format("{:.1f} MiB resident, {} mappings, {} descriptors",
                     static_cast<double>(figures.resident_bytes) / (1 << 20), figures.mappings, figures.descriptors);
}

// One thread's calls, from its own numbers.
class Walker {
 public:
  Walker(EmulatedDriver& driver, unsigned seed) : driver_(driver), random_(seed) {}

  // Makes about that many calls, then gives everything back.
  void walk(std::uint64_t calls) {
    const std::uint64_t until = made() + calls;
    begin();
    while (made() < until) step();
    end();
  }

  [[nodiscard]] const std::array<std::uint64_t, purposes.size()>& counts() const { return counts_; }

 private:
  struct Slot {
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    bool mapped = false;
    bool granted = false;
  };

  [[nodiscard]] std::uint64_t made() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : counts_) sum += count;
    return sum;
  }

  unsigned draw(unsigned below) { return static_cast<unsigned>(random_() % below); }

  template <class... Parameters, class... Arguments>
  void call(Purpose purpose, CUresult (EmulatedDriver::*entry)(Parameters...), Arguments... arguments) {
    ++counts_[static_cast<std::size_t>(purpose)];
    const CUresult code = (driver_.*entry)(arguments...);
    if (code == CUDA_SUCCESS || code == CUDA_ERROR_NOT_READY) return;
    fmt::print(stderr, "a call of {} answered {}: {}\n", purposes[static_cast<std::size_t>(purpose)],
               static_cast<int>(code), driver_.explanation());
    std::exit(1);
  }

  void begin() {
    CUcontext context = nullptr;
    call(Purpose::streams, &EmulatedDriver::cuDevicePrimaryCtxRetain, &context, 0);
    call(Purpose::streams, &EmulatedDriver::cuCtxSetCurrent, context);
    call(Purpose::streams, &EmulatedDriver::cuStreamCreate, &stream_, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
    call(Purpose::events, &EmulatedDriver::cuEventCreate, &event_, 0U);
  }

  void end() {
    synchronize();
    for (Slot& slot : slots_) clear(slot);
    for (CUdeviceptr& allocation : allocations_)
      if (allocation != 0) call(Purpose::allocations, &EmulatedDriver::cuMemFree, std::exchange(allocation, 0));
    call(Purpose::events, &EmulatedDriver::cuEventDestroy, event_);
    call(Purpose::streams, &EmulatedDriver::cuStreamDestroy, stream_);
    call(Purpose::streams, &EmulatedDriver::cuDevicePrimaryCtxRelease, 0);
  }

  void synchronize() {
    call(Purpose::streams, &EmulatedDriver::cuStreamSynchronize, stream_);
    pending_ = false;
  }

  // Strict machines refuse to unmap what is in use.
  void unmap(Slot& slot) {
    if (pending_) synchronize();
    call(Purpose::mappings, &EmulatedDriver::cuMemUnmap, slot.address, granule);
    slot.mapped = slot.granted = false;
  }

  void clear(Slot& slot) {
    if (slot.mapped) unmap(slot);
    if (slot.handle != 0) call(Purpose::physical_memory, &EmulatedDriver::cuMemRelease, slot.handle);
    if (slot.address != 0) call(Purpose::addresses, &EmulatedDriver::cuMemAddressFree, slot.address, granule);
    slot = {};
  }

  void step() {
    Slot& slot = slots_[draw(static_cast<unsigned>(slots_.size()))];
    if (!slot.granted) return build(slot);
    switch (draw(16)) {
      case 0:
        return clear(slot);
      case 1:
      case 2:
      case 3:
        return remap(slot);
      case 4:
      case 5:
        return work(slot);
      case 6:
        return copy(slot);
      case 7:
        return wait();
      case 8:
        return exchange(slot);
      case 9:
      case 10:
        return allocate();
      case 11:
        return retain(slot);
      case 12:
        return make_stream();
      default:
        return ask(slot);
    }
  }

  // The next of what a slot lacks.
  void build(Slot& slot) {
    if (slot.address == 0)
      return call(Purpose::addresses, &EmulatedDriver::cuMemAddressReserve, &slot.address, granule, std::size_t{0},
                  CUdeviceptr{0}, 0ULL);
    if (slot.handle == 0) {
      CUmemAllocationProp properties{};
      properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
      properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, static_cast<int>(draw(devices))};
      properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
      return call(Purpose::physical_memory, &EmulatedDriver::cuMemCreate, &slot.handle, granule, &properties, 0ULL);
    }
    if (!slot.mapped) {
      call(Purpose::mappings, &EmulatedDriver::cuMemMap, slot.address, granule, std::size_t{0}, slot.handle, 0ULL);
      slot.mapped = true;
      return;
    }
    std::array<CUmemAccessDesc, devices> grants{};
    for (int device = 0; device < devices; ++device)
      grants[static_cast<std::size_t>(device)] = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    call(Purpose::rights, &EmulatedDriver::cuMemSetAccess, slot.address, granule, grants.data(), grants.size());
    slot.granted = true;
  }

  void remap(Slot& slot) {
    unmap(slot);
    build(slot);
    build(slot);
  }

  void work(Slot& slot) {
    pending_ = true;
    if (draw(4) == 0)
      return call(Purpose::copies, &EmulatedDriver::cuMemsetD32Async, slot.address, 7U, std::size_t{64}, stream_);
    call(Purpose::copies, &EmulatedDriver::cuMemsetD8Async, slot.address + 4096 * draw(8),
         static_cast<unsigned char>(draw(256)), std::size_t{4096}, stream_);
  }

  // Not of what work() writes to: a stream that does not block is not waited for.
  void copy(Slot& slot) {
    std::array<unsigned char, 256> bytes{};
    const CUdeviceptr there = slot.address + granule / 2;
    if (draw(2) == 0)
      return call(Purpose::copies, &EmulatedDriver::cuMemcpyHtoD, there, static_cast<const void*>(bytes.data()),
                  bytes.size());
    call(Purpose::copies, &EmulatedDriver::cuMemcpyDtoH, static_cast<void*>(bytes.data()), there, bytes.size());
  }

  void wait() {
    call(Purpose::events, &EmulatedDriver::cuEventRecord, event_, stream_);
    call(Purpose::events, &EmulatedDriver::cuEventQuery, event_);
    call(Purpose::events, &EmulatedDriver::cuStreamWaitEvent, stream_, event_, 0U);
  }

  void exchange(Slot& slot) {
    int descriptor = -1;
    if (draw(4) == 0) {
      call(Purpose::exchange, &EmulatedDriver::cuMemGetHandleForAddressRange, static_cast<void*>(&descriptor),
           slot.address, granule, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0ULL);
    } else {
      call(Purpose::exchange, &EmulatedDriver::cuMemExportToShareableHandle, static_cast<void*>(&descriptor),
           slot.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ULL);
      CUmemGenericAllocationHandle other = 0;
      call(Purpose::exchange, &EmulatedDriver::cuMemImportFromShareableHandle, &other,
           reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      call(Purpose::physical_memory, &EmulatedDriver::cuMemRelease, other);
    }
    ::close(descriptor);
  }

  void allocate() {
    CUdeviceptr& allocation = allocations_[draw(static_cast<unsigned>(allocations_.size()))];
    if (draw(8) == 0) {
      void* host = nullptr;
      call(Purpose::allocations, &EmulatedDriver::cuMemHostAlloc, &host, std::size_t{4096}, 0U);
      return call(Purpose::allocations, &EmulatedDriver::cuMemFreeHost, host);
    }
    if (allocation != 0) return call(Purpose::allocations, &EmulatedDriver::cuMemFree, std::exchange(allocation, 0));
    call(Purpose::allocations, &EmulatedDriver::cuMemAlloc, &allocation, std::size_t{256} << draw(14));
  }

  void retain(Slot& slot) {
    CUmemGenericAllocationHandle handle = 0;
    call(Purpose::physical_memory, &EmulatedDriver::cuMemRetainAllocationHandle, &handle,
         reinterpret_cast<void*>(slot.address));
    call(Purpose::physical_memory, &EmulatedDriver::cuMemRelease, handle);
  }

  void make_stream() {
    CUstream stream = nullptr;
    call(Purpose::streams, &EmulatedDriver::cuStreamCreate, &stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
    call(Purpose::streams, &EmulatedDriver::cuStreamQuery, stream);
    call(Purpose::streams, &EmulatedDriver::cuStreamDestroy, stream);
  }

  void ask(Slot& slot) {
    unsigned type = 0;
    CUdeviceptr base = 0;
    std::size_t size = 0;
    unsigned long long flags = 0;
    const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
    switch (draw(4)) {
      case 0:
        return call(Purpose::queries, &EmulatedDriver::cuPointerGetAttribute, static_cast<void*>(&type),
                    CU_POINTER_ATTRIBUTE_MEMORY_TYPE, slot.address + 100);
      case 1:
        return call(Purpose::queries, &EmulatedDriver::cuMemGetAddressRange, &base, &size, slot.address + 100);
      case 2:
        return call(Purpose::queries, &EmulatedDriver::cuMemGetInfo, &base_size_, &size);
      default:
        return call(Purpose::rights, &EmulatedDriver::cuMemGetAccess, &flags, &location, slot.address);
    }
  }

  EmulatedDriver& driver_;
  std::mt19937_64 random_;
  std::array<std::uint64_t, purposes.size()> counts_{};
  std::array<Slot, 32> slots_{};
  std::array<CUdeviceptr, 16> allocations_{};
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  std::size_t base_size_ = 0;
  bool pending_ = false;
};

void walk_all(std::vector<Walker>& walkers, std::uint64_t calls) {
  std::vector<std::thread> threads;
  threads.reserve(walkers.size());
  for (Walker& walker : walkers)
    threads.emplace_back([&walker, share = calls / walkers.size()] { walker.walk(share); });
  for (std::thread& thread : threads) thread.join();
}

// The calls by their purpose: "mappings 31.0 %, ...".
std::uint64_t print_mix(const std::vector<Walker>& walkers) {
  std::array<std::uint64_t, purposes.size()> sums{};
  std::uint64_t sum = 0;
  for (const Walker& walker : walkers) {
    for (std::size_t purpose = 0; purpose < sums.size(); ++purpose) sums[purpose] += walker.counts()[purpose];
    for (const std::uint64_t count : walker.counts()) sum += count;
  }
  std::string mix;
  for (std::size_t purpose = 0; purpose < sums.size(); ++purpose)
    mix += fmt::format("{}{} {:.1f} %", mix.empty() ? "" : ", ", purposes[purpose],
                       100.0 * static_cast<double>(sums[purpose]) / static_cast<double>(sum));
  fmt::print("mix: {}\n", mix);
  return sum;
}

std::uint64_t number(int count, char** texts, int index, std::uint64_t otherwise) {
  return index < count ? std::strtoull(texts[index], nullptr, 10) : otherwise;
}

bool nothing_lives(EmulatedDriver& driver) {
  return driver.machine().live_objects() == cuvmm::emulator::api::Machine::LiveObjects{} &&
         driver.live_handles() == EmulatedDriver::LiveHandles{};
}

}  // namespace

int main(int count, char** texts) {
  const bool thorough = std::getenv("CUVMM_TEST_LONG") != nullptr;
  const std::uint64_t calls = number(count, texts, 1, thorough ? 10'000'000 : 200'000);
  const std::uint64_t threads = number(count, texts, 2, 4);
  const std::uint64_t seed = number(count, texts, 3, 1);

  cuvmm::emulator::Configuration configuration;
  configuration.mode = cuvmm::emulator::Mode::strict;
  configuration.devices = devices;
  const auto driver = std::make_shared<EmulatedDriver>(configuration);
  if (driver->cuInit(0) != CUDA_SUCCESS) return 1;
  std::vector<Walker> walkers;
  walkers.reserve(threads);
  for (std::uint64_t index = 0; index < threads; ++index)
    walkers.emplace_back(*driver, static_cast<unsigned>(seed * 1000 + index));

  walk_all(walkers, calls / 10);
  const Figures warm = measure(*driver);
  walk_all(walkers, calls - calls / 10);
  const Figures last = measure(*driver);

  const std::uint64_t made = print_mix(walkers);
  fmt::print("{} calls by {} threads, seed {}\nafter a tenth: {}\nat the end:    {}\n", made, threads, seed,
             to_string(warm), to_string(last));
  if (!nothing_lives(*driver)) {
    fmt::print("objects are alive\n");
    return 1;
  }
  constexpr std::uint64_t noise_bytes = std::uint64_t{8} << 20;  // of the allocator's
  constexpr std::size_t noise_mappings = 32;                     // stacks and arenas of threads
  // Sanitizers keep what was freed, and remember more with each call.
  const bool flat = (sanitized || (last.resident_bytes < warm.resident_bytes + noise_bytes &&
                                   last.mappings <= warm.mappings + noise_mappings)) &&
                    last.descriptors == warm.descriptors;
  fmt::print("no object is alive; {}\n", flat ? "memory is flat" : "MEMORY GROWS");
  return flat ? 0 : 1;
}
