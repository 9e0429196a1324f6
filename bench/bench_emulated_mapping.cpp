// What map + grant + unmap of device memory cost on the emulated driver, against create + release of the same memory.
// Each round does one of both, so that whatever else the machine does falls on both alike.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "driver/interface.hpp"
#include "emulator/emulated_driver.hpp"

namespace {

using namespace cuvmm::abi;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

void check(CUresult result) {
  if (result != CUDA_SUCCESS) throw std::runtime_error("the driver answered " + std::to_string(result));
}

constexpr CUmemLocation device{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};

CUmemGenericAllocationHandle create(cuvmm::driver::Interface& driver, std::size_t size) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = device;
  CUmemGenericAllocationHandle handle = 0;
  check(driver.cuMemCreate(&handle, size, &properties, 0));
  return handle;
}

void map_and_grant(cuvmm::driver::Interface& driver, CUdeviceptr address, std::size_t size,
                   CUmemGenericAllocationHandle handle) {
  const CUmemAccessDesc access{.location = device, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  check(driver.cuMemMap(address, size, 0, handle, 0));
  check(driver.cuMemSetAccess(address, size, &access, 1));
}

// Arguments: MiB of the allocation; how many other mappings are alive in the same reservation.
void map_grant_unmap(benchmark::State& state) {
  const std::size_t size = static_cast<std::size_t>(state.range(0)) << 20U;
  const auto others = static_cast<std::size_t>(state.range(1));
  const auto driver = cuvmm::emulator::make_emulated_driver(cuvmm::emulator::Configuration{});
  check(driver->cuInit(0));

  const std::size_t granule = std::size_t{2} << 20U;
  const std::size_t reserved = size + others * granule;
  CUdeviceptr base = 0;
  check(driver->cuMemAddressReserve(&base, reserved, 0, 0, 0));
  std::vector<CUmemGenericAllocationHandle> handles;
  for (std::size_t other = 0; other < others; ++other) {
    handles.push_back(create(*driver, granule));
    map_and_grant(*driver, base + size + other * granule, granule, handles.back());
  }
  const CUmemGenericAllocationHandle handle = create(*driver, size);

  Seconds mapping{};
  Seconds creating{};
  for ([[maybe_unused]] auto round : state) {
    const auto begin = Clock::now();
    map_and_grant(*driver, base, size, handle);
    check(driver->cuMemUnmap(base, size));
    const auto between = Clock::now();
    check(driver->cuMemRelease(create(*driver, size)));
    const auto end = Clock::now();
    mapping += between - begin;
    creating += end - between;
    state.SetIterationTime(Seconds(between - begin).count());
  }
  state.counters["of_create_release"] = mapping / creating;

  if (others != 0) check(driver->cuMemUnmap(base + size, others * granule));
  for (const auto other : handles) check(driver->cuMemRelease(other));
  check(driver->cuMemRelease(handle));
  check(driver->cuMemAddressFree(base, reserved));
}

BENCHMARK(map_grant_unmap)
    ->ArgNames({"MiB", "others"})
    ->ArgsProduct({{2, 64, 1024}, {0, 10'000}})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
