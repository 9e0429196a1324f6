// Profiles and single behaviours through the entry points, and the warnings of faithful mode.
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

int attribute(Emulated& driver, CUdevice_attribute which, int device = 0) {
  int value = -1;
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetAttribute(&value, which, device));
  return value;
}

Configuration with_profile(const char* name) {
  Configuration configuration = strict();
  configuration.profile = *find_profile(name);
  return configuration;
}

TEST(Profiles, AreFoundByEveryNameAndNoOther) {
  for (const std::string& name : profile_names()) {
    ASSERT_TRUE(find_profile(name)) << name;
    Emulated driver(with_profile(name.c_str()));
    EXPECT_NE(driver->description().find(name), std::string::npos);
    EXPECT_NE(driver->description().find("strict"), std::string::npos);
    int version = 0;
    EXPECT_ANSWER(SUCCESS, *driver, cuDriverGetVersion(&version));
    EXPECT_EQ(version, name == "h200-590" ? 13010 : 13000) << name;
  }
  EXPECT_FALSE(find_profile("h200"));
}

// A machine whose attribute is 0 refuses what the attribute stands for; the recorded one accepts it.
TEST(Profiles, AnswerAsTheirAttributesSay) {
  struct Case {
    const char* profile;
    CUdevice_attribute attribute;
    CUresult (*use)(Emulated&);
    CUresult answer;
  };
  const Case cases[] = {
      {"no-vmm", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
       [](Emulated& driver) {
         CUdeviceptr address = 0;
         return driver->cuMemAddressReserve(&address, chunk, 0, 0, 0);
       },
       CUDA_ERROR_NOT_SUPPORTED},
      {"no-descriptors", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
       [](Emulated& driver) {
         const CUmemAllocationProp properties = on_device(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
         CUmemGenericAllocationHandle handle = 0;
         return driver->cuMemCreate(&handle, chunk, &properties, 0);
       },
       CUDA_ERROR_NOT_SUPPORTED},
      {"no-rdma", CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
       [](Emulated& driver) {
         int descriptor = -1;
         const CUresult result = driver->cuMemGetHandleForAddressRange(&descriptor, driver.mapped(), chunk,
                                                                       CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
         if (result == CUDA_SUCCESS) ::close(descriptor);
         return result;
       },
       CUDA_ERROR_NOT_SUPPORTED},
  };
  for (const Case& one : cases) {
    Emulated without(with_profile(one.profile)), with(with_profile("h200-580"));
    EXPECT_EQ(attribute(without, one.attribute), 0) << one.profile;
    EXPECT_EQ(one.use(without), one.answer) << one.profile;
    EXPECT_EQ(attribute(with, one.attribute), 1) << one.profile;
    EXPECT_EQ(one.use(with), CUDA_SUCCESS) << one.profile;
  }
}

TEST(Profiles, WithoutAFeatureGiveNoneOfItWhenAsked) {
  const auto granted = [](const char* profile, unsigned char compression, unsigned char rdma) {
    Emulated driver(with_profile(profile));
    CUmemAllocationProp asked = on_device(0), seen{};
    asked.allocFlags.compressionType = compression;
    asked.allocFlags.gpuDirectRDMACapable = rdma;
    EXPECT_ANSWER(SUCCESS, *driver, cuMemGetAllocationPropertiesFromHandle(&seen, driver.create(asked)));
    return std::pair<int, int>(seen.allocFlags.compressionType, seen.allocFlags.gpuDirectRDMACapable);
  };
  EXPECT_EQ(granted("h200-580", 1, 0), std::pair(1, 0));
  EXPECT_EQ(granted("h200-580", 0, 1), std::pair(0, 1));
  EXPECT_EQ(granted("h200-580", 1, 1), std::pair(0, 1));
  EXPECT_EQ(granted("no-compression", 1, 0), std::pair(0, 0));
  EXPECT_EQ(granted("no-compression", 0, 1), std::pair(0, 1));
  EXPECT_EQ(granted("no-rdma", 1, 1), std::pair(1, 0));
}

TEST(Profiles, DeviceFactsAreEachDevicesOwn) {
  Emulated driver(strict(3));
  char first[32], second[32], shortened[4];
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetPCIBusId(first, sizeof first, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetPCIBusId(second, sizeof second, 1));
  EXPECT_STRNE(first, second);
  EXPECT_EQ(attribute(driver, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 1),
            attribute(driver, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID) + 1);
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetName(shortened, sizeof shortened, 2));
  EXPECT_STREQ(shortened, "NVI");
  EXPECT_ANSWER(ERROR_INVALID_DEVICE, *driver, cuDeviceGetName(shortened, sizeof shortened, 3));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuDeviceGetName(shortened, 0, 0));
  int value = 0;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(100000), 0));
}

TEST(Profiles, ThatNameFewAttributesCauseNoHarm) {
  Configuration configuration = strict();
  const auto supported = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
  configuration.profile.attributes = {{supported, 1}};
  Emulated driver(configuration);
  int descriptor = -1;
  char bus_id[32];
  EXPECT_ANSWER(
      ERROR_NOT_SUPPORTED, *driver,
      cuMemGetHandleForAddressRange(&descriptor, driver.mapped(), chunk, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceGetPCIBusId(bus_id, sizeof bus_id, 0));
}

TEST(Behaviours, CanEachBeSwitchedOnByTheEnvironment) {
  const auto driver_of = [](const char* list) {
    ::setenv("CUVMM_EMULATOR", list, 1);
    const Configuration configuration = Configuration::from_environment();
    ::unsetenv("CUVMM_EMULATOR");
    return Emulated(configuration);
  };
  const auto set_access = [](Emulated driver, int rdma) {
    CUmemAllocationProp properties = on_device(0);
    properties.allocFlags.gpuDirectRDMACapable = static_cast<unsigned char>(rdma);
    const auto handle = driver.create(properties);
    const CUdeviceptr address = driver.reserve();
    driver.map(address, handle);
    return driver.grant(address, chunk, grant_device(0));
  };
  EXPECT_EQ(set_access(driver_of(""), 1), CUDA_SUCCESS);
  EXPECT_EQ(set_access(driver_of("set-access-fails-on-rdma-memory"), 1), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(set_access(driver_of("set-access-fails-on-rdma-memory"), 0), CUDA_SUCCESS);
  EXPECT_EQ(set_access(driver_of("set-access-fails"), 0), CUDA_ERROR_UNKNOWN);

  const auto hinted = [](Emulated driver) {
    const CUdeviceptr first = driver.reserve(), hint = first + 16 * chunk;
    CUdeviceptr address = 0;
    EXPECT_ANSWER(SUCCESS, *driver, cuMemAddressReserve(&address, chunk, 0, hint, 0));
    return address == hint;
  };
  EXPECT_TRUE(hinted(driver_of("")));
  EXPECT_FALSE(hinted(driver_of("ignore-address-hints")));

  const auto fabric = [](const Emulated& driver) {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = on_device(0, CU_MEM_HANDLE_TYPE_FABRIC);
    return driver->cuMemCreate(&handle, chunk, &properties, 0);
  };
  EXPECT_EQ(fabric(driver_of("profile=gb200")), CUDA_SUCCESS);
  EXPECT_EQ(fabric(driver_of("fabric-creation-out-of-memory,profile=gb200")), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fabric(driver_of("")), CUDA_ERROR_NOT_PERMITTED);
}

TEST(Warnings, ComeOnceARuleInFaithfulModeAlone) {
  std::vector<std::string> warnings;
  Configuration configuration = strict();
  configuration.on_warning = [&](const std::string& line) { warnings.push_back(line); };
  const auto map_past_the_end = [](Emulated& driver) {
    const CUdeviceptr range = driver.reserve(2 * chunk);
    const auto handle = driver.create(on_device(0), 2 * chunk);
    return driver->cuMemMap(range + chunk, 2 * chunk, 0, handle, 0);
  };
  Emulated refusing(configuration);
  EXPECT_EQ(map_past_the_end(refusing), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(warnings.empty());
  configuration.mode = Mode::faithful;
  Emulated driver(configuration);
  EXPECT_EQ(map_past_the_end(driver), CUDA_SUCCESS);
  (void)driver.reserve(8 * chunk);  // away from what the first mapping covers
  EXPECT_EQ(map_past_the_end(driver), CUDA_SUCCESS);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("MAP-INSIDE-ONE-RESERVATION"), std::string::npos) << warnings[0];
  EXPECT_EQ(warnings[0].find('\n'), std::string::npos);
}

TEST(Warnings, GoToStandardErrorUnlessSomebodyTakesThem) {
  Configuration configuration = strict();
  configuration.mode = Mode::faithful;
  Emulated driver(configuration);
  const CUdeviceptr range = driver.reserve();
  const auto handle = driver.create(on_device(0), 2 * chunk);
  ::testing::internal::CaptureStderr();
  EXPECT_ANSWER(SUCCESS, *driver, cuMemMap(range, 2 * chunk, 0, handle, 0));
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("MAP-INSIDE-ONE-RESERVATION"), std::string::npos) << text;
}

TEST(Warnings, WhoseReceiverThrowsMakeTheCallFailAndChangeNothing) {
  Configuration configuration = strict();
  configuration.mode = Mode::faithful;
  configuration.on_warning = [](const std::string&) { throw std::runtime_error("the receiver is broken"); };
  Emulated driver(configuration);
  const CUdeviceptr range = driver.reserve();
  const auto handle = driver.create(on_device(0), 2 * chunk);
  EXPECT_ANSWER(ERROR_UNKNOWN, *driver, cuMemMap(range, 2 * chunk, 0, handle, 0));
  EXPECT_NE(driver->explanation().find("the receiver is broken"), std::string::npos) << driver->explanation();
  EXPECT_EQ(driver.live().mappings, 0U);
}

TEST(FaithfulMode, AnswersInvalidValueWhereTheRealDriverCrashes) {
  Configuration configuration = strict();
  configuration.mode = Mode::faithful;
  Emulated driver(configuration);
  const auto handle = driver.create(on_device(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  const CUdeviceptr range = driver.reserve();
  EXPECT_ANSWER(SUCCESS, *driver, cuMemRelease(handle));
  CUmemAllocationProp properties{};
  int descriptor = -1;
  for (const CUmemGenericAllocationHandle dead : {handle, handle + 8, CUmemGenericAllocationHandle{0x1234}}) {
    EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemMap(range, chunk, 0, dead, 0));
    EXPECT_NE(driver->explanation().find("HANDLE-LIVE"), std::string::npos);
    EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemRelease(dead));
    EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemGetAllocationPropertiesFromHandle(&properties, dead));
    EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver,
                  cuMemExportToShareableHandle(&descriptor, dead, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  }
}

}  // namespace
}  // namespace cuvmm::emulator::test
