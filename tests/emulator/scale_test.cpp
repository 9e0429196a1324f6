// Much address space, many chunks, many devices: what that costs the process.
#include <array>
#include <cstdlib>
#include <fstream>
#include <string>

#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

constexpr int devices = 8;
constexpr std::uint64_t tebibyte = std::uint64_t{1} << 40;

std::uint64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  return ~std::uint64_t{0};
}

std::size_t mapping_count() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

void expect_modest() {
  EXPECT_LT(resident_bytes(), 2 * gibibyte);
  EXPECT_LT(mapping_count(), 2000U);
}

// Adds one to a byte at every multiple of `step` in a range, and notes what the process looks like meanwhile.
HostKernel touch_kernel() {
  return {"touch",
          {sizeof(CUdeviceptr), sizeof(std::uint64_t), sizeof(std::uint64_t)},
          [](const KernelArguments& arguments) {
            return std::vector<KernelView>{{arguments.get<CUdeviceptr>(0), arguments.get<std::uint64_t>(1), true}};
          },
          [](const KernelCall& call) {
            for (std::uint64_t at = 0; at < call.arguments.get<std::uint64_t>(1);
                 at += call.arguments.get<std::uint64_t>(2)) {
              std::byte& byte = call.windows[0][at];
              byte = static_cast<std::byte>(std::to_integer<int>(byte) + 1);
            }
            expect_modest();
            return KernelProgress::done;
          }};
}

// Nothing is mapped at device addresses, so that all of them are there under every sanitizer.
Configuration large() {
  Configuration configuration = strict(devices);
  configuration.address_base = 0x1100'0000'0000;
  configuration.address_bytes = 8 * tebibyte;
  configuration.kernels = {touch_kernel()};
  return configuration;
}

TEST(Scale, TenThousandChunksOfEightDevicesInFourTebibytes) {
  constexpr std::uint64_t chunks = 10'000;
  constexpr std::uint64_t bytes = chunks * chunk;
  Emulated driver(large());
  const auto nothing = driver.live();
  const CUdeviceptr range = driver.reserve(4 * tebibyte);
  for (std::uint64_t index = 0; index < chunks; ++index) {
    const auto handle = driver.create(on_device(static_cast<int>(index * devices / chunks)));
    driver.map(range + index * chunk, handle);
    EXPECT_ANSWER(SUCCESS, *driver, cuMemRelease(handle));
  }
  std::array<CUmemAccessDesc, devices> grants{};
  for (int device = 0; device < devices; ++device) grants[static_cast<std::size_t>(device)] = grant_device(device);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemSetAccess(range, bytes, grants.data(), grants.size()));
  expect_modest();
  for (const int device : {0, devices - 1}) {
    driver.use(device);
    EXPECT_EQ(driver.launch(driver.function("touch"), nullptr, range, bytes, 5 * chunk), CUDA_SUCCESS);
    EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  }
  EXPECT_EQ(driver.read(range + bytes - 5 * chunk, 2), (std::vector<unsigned char>{2, 0}));
  // A copy across two devices' chunks.
  const CUdeviceptr seam = range + chunks / devices * chunk;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyDtoD(range + bytes - 8 * chunk, seam - 4 * chunk, 8 * chunk));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  expect_modest();
  driver.unmap_and_free(range, 4 * tebibyte);
  EXPECT_EQ(driver.live(), nothing);
}

TEST(Scale, AliasesByTheTensOfThousands) {
  const bool thorough = std::getenv("CUVMM_TEST_LONG") != nullptr;
  const std::uint64_t count = thorough ? 1'000'000 : 50'000;
  Emulated driver(large());
  const auto handle = driver.create(on_device(0));
  const CUdeviceptr range = driver.reserve(count * chunk);
  for (std::uint64_t index = 0; index < count; ++index)
    if (driver->cuMemMap(range + index * chunk, chunk, 0, handle, 0) != CUDA_SUCCESS) FAIL() << driver->explanation();
  EXPECT_EQ(driver.grant(range, count * chunk, grant_device(0)), CUDA_SUCCESS);
  driver.write(range, {1, 2, 3});
  EXPECT_EQ(driver.read(range + (count - 1) * chunk, 3), (std::vector<unsigned char>{1, 2, 3}));
  expect_modest();
  driver.unmap_and_free(range, count * chunk);
}

}  // namespace
}  // namespace cuvmm::emulator::test
