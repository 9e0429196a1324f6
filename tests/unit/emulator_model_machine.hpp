// A machine's model without bytes, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "emulator/configuration.hpp"
#include "emulator/model/address_space.hpp"
#include "emulator/model/physical_store.hpp"
#include "emulator/model/virtual_memory.hpp"
#include "emulator_model_store.hpp"

namespace cuvmm::emulator::model::test {

inline constexpr std::uint64_t granule = std::uint64_t{2} << 20;

// Notes what the host would see, and refuses one change when told to.
class HostView final : public HostViewListener {
 public:
  Answer host_rights_change(const Mapping& mapping, CUmemAccess_flags now) noexcept override {
    if (refuse_once_after >= 0 && refuse_once_after-- == 0)
      return {CUDA_ERROR_OPERATING_SYSTEM, Rule::operating_system, "the test says so"};
    seen[mapping.address] = now;
    return {};
  }
  void mapping_goes(const Mapping& mapping) noexcept override { seen.erase(mapping.address); }

  std::map<CUdeviceptr, CUmemAccess_flags> seen;
  int refuse_once_after = -1;  // how many changes succeed before one is refused; -1: all
};

inline Configuration model_configuration(Mode mode) {
  Configuration configuration;
  configuration.mode = mode;
  configuration.devices = 2;
  configuration.profile.host_memory = 16 * granule;
  return configuration;
}

struct ModelMachine {
  explicit ModelMachine(Configuration chosen = model_configuration(Mode::strict))
      : configuration(std::move(chosen)),
        store(Ledger(configuration.devices, 16 * granule, configuration.profile.host_memory)),
        addresses(granule, 64 * granule),
        memory(configuration, store, addresses, host_view,
               [this](Rule rule, const std::string&) { warnings.push_back(rule); }) {
    store.supply.imex_channel = configuration.profile.imex_channel;
  }

  CUmemGenericAllocationHandle create(const CUmemAllocationProp& properties, std::uint64_t bytes = granule) {
    CUmemGenericAllocationHandle handle = 0;
    const Answer answer = memory.create(&handle, bytes, &properties, 0);
    EXPECT_TRUE(answer.ok()) << answer.detail;
    return handle;
  }
  CUdeviceptr reserve(std::uint64_t bytes = granule) {
    CUdeviceptr address = 0;
    const Answer answer = memory.reserve(&address, bytes, 0, 0, 0);
    EXPECT_TRUE(answer.ok()) << answer.detail;
    return address;
  }
  CUdeviceptr mapped(const CUmemAllocationProp& properties, std::uint64_t bytes = granule) {
    const CUmemGenericAllocationHandle handle = create(properties, bytes);
    const CUdeviceptr address = reserve(bytes);
    EXPECT_TRUE(memory.map(address, bytes, 0, handle, 0).ok());
    EXPECT_TRUE(memory.release(handle).ok());
    return address;
  }
  unsigned long long access(CUdeviceptr address, const CUmemLocation& location) const {
    unsigned long long flags = 99;
    EXPECT_TRUE(memory.get_access(&flags, &location, address).ok());
    return flags;
  }

  const Configuration configuration;
  HostView host_view;
  std::vector<Rule> warnings;
  LedgerStore store;
  AddressSpace addresses;
  VirtualMemory memory;
};

inline CUmemAllocationProp at(CUmemLocationType type, int id = 0, int handle_types = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {type, id};
  properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
  return properties;
}

inline constexpr CUmemLocation device_0{CU_MEM_LOCATION_TYPE_DEVICE, 0};
inline constexpr CUmemLocation device_1{CU_MEM_LOCATION_TYPE_DEVICE, 1};
inline constexpr CUmemLocation the_host{CU_MEM_LOCATION_TYPE_HOST, 0};

inline void expect_answer(const Answer& answer, CUresult code, Rule rule) {
  EXPECT_EQ(answer.code, code) << answer.detail;
  EXPECT_EQ(text(answer.rule).id, text(rule).id) << answer.detail;
  EXPECT_FALSE(answer.detail.empty());
}
inline void expect_ok(const Answer& answer) {
  EXPECT_TRUE(answer.ok()) << text(answer.rule).id << ": " << answer.detail;
}

}  // namespace cuvmm::emulator::model::test
