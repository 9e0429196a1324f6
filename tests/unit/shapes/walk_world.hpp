// What random walks go through: a driver whose calls can be made to fail, and the driver beneath.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cuvmm/driver.hpp"
#include "cuvmm/units.hpp"
#include "driver/fault_injecting_driver.hpp"

namespace cuvmm::test {

constexpr std::size_t page = std::size_t{2} << 20;

struct WalkWorld {
  Driver driver;  // with the faults in it
  driver::FaultInjectingDriver& faults;
  driver::Interface& beneath;     // without them
  std::vector<Location> devices;  // the first one's context is current

  // Makes the n-th call of an entry point fail from now on.
  void fail(driver::EntryPoint entry, std::uint64_t call = 1,
            abi::CUresult result = abi::CUDA_ERROR_OUT_OF_MEMORY) const {
    faults.inject({entry, call, result, driver::FaultTiming::instead, false});
  }

  void write(DeviceAddress address, std::uint64_t tag) const {
    ASSERT_EQ(beneath.cuMemcpyHtoD(address.value, &tag, sizeof tag), abi::CUDA_SUCCESS);
  }
  [[nodiscard]] std::uint64_t read(DeviceAddress address) const {
    std::uint64_t tag = 0;
    EXPECT_EQ(beneath.cuMemcpyDtoH(&tag, address.value, sizeof tag), abi::CUDA_SUCCESS) << beneath.explanation();
    return tag;
  }
  [[nodiscard]] AccessRights rights(DeviceAddress address, const Location& location) const {
    const abi::CUmemLocation converted{static_cast<abi::CUmemLocationType>(location.kind), location.id};
    unsigned long long flags = 0;
    EXPECT_EQ(beneath.cuMemGetAccess(&flags, &converted, address.value), abi::CUDA_SUCCESS);
    return static_cast<AccessRights>(flags);
  }
};

}  // namespace cuvmm::test
