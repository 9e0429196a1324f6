// Create, reserve, map, grant, use, unmap, release, free; with bytes.
#include <vector>

#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

std::vector<unsigned char> pattern(std::size_t bytes, unsigned seed) {
  std::vector<unsigned char> content(bytes);
  for (std::size_t index = 0; index < bytes; ++index) content[index] = static_cast<unsigned char>(index * 31 + seed);
  return content;
}

TEST(LifeCycle, MovesBytesAndGivesEverythingBack) {
  Emulated driver;
  const auto nothing = driver.live();
  const std::size_t free_before = driver.free_memory();
  const auto handle = driver.create(on_device(0), 2 * chunk);
  EXPECT_EQ(driver.free_memory(), free_before - 2 * chunk);
  const CUdeviceptr address = driver.reserve(2 * chunk);
  driver.map(address, handle, 2 * chunk);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD8(address, 1, 1));
  EXPECT_EQ(driver.grant(address, 2 * chunk, grant_device(0)), CUDA_SUCCESS);
  const auto content = pattern(2 * chunk, 7);
  driver.write(address, content);
  EXPECT_EQ(driver.read(address, content.size()), content);
  EXPECT_EQ(driver.read(address + 12345, 1000), std::vector(content.begin() + 12345, content.begin() + 13345));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemAddressFree(address, 2 * chunk));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemUnmap(address, 2 * chunk));
  std::vector<unsigned char> byte(1);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemcpyDtoH(byte.data(), address, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAddressFree(address, 2 * chunk));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemRelease(handle));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemRelease(handle));
  EXPECT_EQ(driver.live(), nothing);
  EXPECT_EQ(driver.free_memory(), free_before);
}

TEST(LifeCycle, MemoryIsZeroWhenNewAndKeepsItsBytesThroughRemapping) {
  Emulated driver;
  const auto handle = driver.create(on_device(0));
  const CUdeviceptr first = driver.reserve(), second = driver.reserve();
  driver.map(first, handle);
  EXPECT_EQ(driver.grant(first, chunk, grant_device(0)), CUDA_SUCCESS);
  EXPECT_EQ(driver.read(first, 100), std::vector<unsigned char>(100, 0));
  driver.write(first, pattern(chunk, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemUnmap(first, chunk));
  driver.map(second, handle);
  EXPECT_EQ(driver.grant(second, chunk, grant_device(0)), CUDA_SUCCESS);
  EXPECT_EQ(driver.read(second, chunk), pattern(chunk, 1));
  driver.unmap_and_free(second);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemRelease(handle));
  const CUdeviceptr fresh = driver.mapped();
  EXPECT_EQ(driver.read(fresh, chunk), std::vector<unsigned char>(chunk, 0)) << "nothing is left of others' bytes";
}

TEST(LifeCycle, AliasesShowTheSameBytes) {
  Emulated driver;
  const auto handle = driver.create(on_device(0));
  const CUdeviceptr range = driver.reserve(3 * chunk);
  for (int index = 0; index < 3; ++index) driver.map(range + static_cast<CUdeviceptr>(index) * chunk, handle);
  EXPECT_EQ(driver.grant(range, 3 * chunk, grant_device(0)), CUDA_SUCCESS);
  driver.write(range + chunk, pattern(1000, 3));
  EXPECT_EQ(driver.read(range, 1000), pattern(1000, 3));
  EXPECT_EQ(driver.read(range + 2 * chunk, 1000), pattern(1000, 3));
  // A copy across the seam of two aliases reads the end and the beginning of the same memory.
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(range + chunk - 4, 9, 4));
  EXPECT_EQ(driver.read(range + 2 * chunk - 4, 6), (std::vector<unsigned char>{9, 9, 9, 9, 3, 34}));
}

TEST(LifeCycle, CopiesAndMemsetsCrossAllocations) {
  Emulated driver;
  const CUdeviceptr range = driver.reserve(4 * chunk), target = driver.mapped(4 * chunk);
  for (int index = 0; index < 4; ++index)
    driver.map(range + static_cast<CUdeviceptr>(index) * chunk, driver.create(on_device(0)));
  EXPECT_EQ(driver.grant(range, 4 * chunk, grant_device(0)), CUDA_SUCCESS);
  const auto content = pattern(3 * chunk, 5);
  driver.write(range + chunk / 2, content);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyDtoD(target + 7, range + chunk / 2, content.size()));
  EXPECT_EQ(driver.read(target + 7, content.size()), content);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD32(range + chunk - 8, 0x04030201, 4));
  EXPECT_EQ(driver.read(range + chunk - 8, 16),
            (std::vector<unsigned char>{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD16(range + chunk - 2, 0x0605, 2));
  EXPECT_EQ(driver.read(range + chunk - 2, 4), (std::vector<unsigned char>{5, 6, 5, 6}));
}

TEST(LifeCycle, OneDevicesMemoryIsNotAnothers) {
  Configuration configuration = strict(2);
  configuration.device_memory = configuration.profile.device_memory_reserved + 4 * chunk;
  Emulated driver(configuration);
  const auto handle = driver.create(on_device(1), 4 * chunk);
  EXPECT_EQ(driver.free_memory(), 4 * chunk);
  driver.use(1);
  EXPECT_EQ(driver.free_memory(), 0U);
  CUmemGenericAllocationHandle another = 0;
  const CUmemAllocationProp here = on_device(1);
  EXPECT_ANSWER(ERROR_OUT_OF_MEMORY, *driver, cuMemCreate(&another, chunk, &here, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemRelease(handle));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemCreate(&another, chunk, &here, 0));
}

TEST(LifeCycle, NeedsInitialisationFirst) {
  api::EmulatedDriver driver(strict());
  CUdeviceptr address = 0;
  EXPECT_ANSWER(ERROR_NOT_INITIALIZED, driver, cuMemAddressReserve(&address, chunk, 0, 0, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, driver, cuInit(1));
  EXPECT_ANSWER(SUCCESS, driver, cuInit(0));
  EXPECT_ANSWER(SUCCESS, driver, cuMemAddressReserve(&address, chunk, 0, 0, 0));
}

TEST(LifeCycle, NeedsNoCurrentContextForVirtualMemory) {
  Emulated driver;
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSetCurrent(nullptr));
  const CUdeviceptr address = driver.mapped();
  driver.unmap_and_free(address);
  EXPECT_ANSWER(ERROR_INVALID_CONTEXT, *driver, cuMemsetD8(address, 0, 1));
}

TEST(Explanation, NamesRuleAndWayOutAndGoesWithSuccess) {
  Emulated driver;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemAddressFree(0, chunk));
  EXPECT_NE(driver->explanation().find("FREE-WHOLE-RESERVATION"), std::string::npos) << driver->explanation();
  (void)driver.reserve();
  EXPECT_EQ(driver->explanation(), "");
}

TEST(Sizes, ThatWrapAroundAreRefused) {
  Emulated driver;
  const CUdeviceptr address = driver.mapped();
  unsigned char byte = 0;
  constexpr std::size_t everything = ~std::size_t{0};
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemcpyDtoH(&byte, address + 16, everything - 8));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemcpyDtoD(address, address + 16, everything - 8));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD8(address + 16, 0, everything - 8));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD32(address, 0, std::size_t{1} << 62));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD16(address, 0, (std::size_t{1} << 63) + 1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemUnmap(address, everything - chunk + 1));
  const CUmemAccessDesc grant = grant_device(0);
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemSetAccess(address, everything - chunk + 1, &grant, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD32(address, 0, chunk / 4));
}

TEST(Copies, TakeADeviceAddressWhereTheCallSaysSo) {
  Emulated driver;
  const CUdeviceptr address = driver.mapped();
  std::vector<unsigned char> here(64, 1), there(64, 2);
  const auto as_address = [](std::vector<unsigned char>& memory) {
    return reinterpret_cast<CUdeviceptr>(memory.data());
  };
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemcpyHtoD(as_address(there), here.data(), 64));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemcpyHtoD(0x1234000, here.data(), 64));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemcpyDtoH(here.data(), as_address(there), 64));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemcpyDtoD(address, as_address(there), 64));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD8(as_address(there), 0, 64));
  EXPECT_EQ(there, std::vector<unsigned char>(64, 2));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpy(address, as_address(there), 64));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyDtoH(here.data(), address, 64));
  EXPECT_EQ(here, there);
  // Page-locked memory has a device address.
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostRegister(there.data(), 64, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(as_address(there), 5, 64));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  EXPECT_EQ(there, std::vector<unsigned char>(64, 5));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemHostUnregister(there.data()));
}

}  // namespace
}  // namespace cuvmm::emulator::test
