// Every rule that the model answers, from both sides: the call that breaks it, and the same call mended.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "emulator/model/device_heap.hpp"
#include "emulator/model/virtual_memory.hpp"
#include "emulator_model_machine.hpp"

namespace cuvmm::emulator::model {
namespace {

using namespace test;

constexpr auto invalid = CUDA_ERROR_INVALID_VALUE;
const CUmemAllocationProp device_memory = at(CU_MEM_LOCATION_TYPE_DEVICE);

CUmemAllocationProp changed(CUmemAllocationProp properties, const std::function<void(CUmemAllocationProp&)>& change) {
  change(properties);
  return properties;
}

Configuration profile(const char* name, Mode mode = Mode::strict) {
  Configuration configuration = model_configuration(mode);
  configuration.profile = *find_profile(name);
  configuration.profile.host_memory = 16 * granule;
  return configuration;
}

TEST(Granularity, IsTheProfilesForMinimumAndRecommended) {
  ModelMachine machine;
  std::size_t size = 0;
  expect_answer(machine.memory.granularity(nullptr, &device_memory, CU_MEM_ALLOC_GRANULARITY_MINIMUM), invalid,
                Rule::output_pointer);
  expect_answer(machine.memory.granularity(&size, nullptr, CU_MEM_ALLOC_GRANULARITY_MINIMUM), invalid,
                Rule::output_pointer);
  expect_answer(machine.memory.granularity(&size, &device_memory, static_cast<CUmemAllocationGranularity_flags>(2)),
                invalid, Rule::granularity_option);
  expect_ok(machine.memory.granularity(&size, &device_memory, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  EXPECT_EQ(size, granule);
}

TEST(Create, WantsWholeGranulesAndWellFormedProperties) {
  ModelMachine machine;
  CUmemGenericAllocationHandle handle = 0;
  const auto create = [&](std::size_t bytes, const CUmemAllocationProp& properties) {
    return machine.memory.create(&handle, bytes, &properties, 0);
  };
  expect_answer(create(0, device_memory), invalid, Rule::create_size);
  expect_answer(create(granule + 1, device_memory), invalid, Rule::create_size);
  expect_answer(machine.memory.create(nullptr, granule, &device_memory, 0), invalid, Rule::output_pointer);
  expect_answer(machine.memory.create(&handle, granule, nullptr, 0), invalid, Rule::output_pointer);
  expect_answer(machine.memory.create(&handle, granule, &device_memory, 1), invalid, Rule::flags_zero);
  expect_answer(create(granule, changed(device_memory, [](auto& p) { p.type = CU_MEM_ALLOCATION_TYPE_MANAGED; })),
                invalid, Rule::create_properties);
  expect_answer(create(granule, changed(device_memory, [](auto& p) { p.allocFlags.reserved[3] = 1; })), invalid,
                Rule::create_properties);
  expect_answer(create(granule, changed(device_memory, [](auto& p) { p.allocFlags.compressionType = 2; })), invalid,
                Rule::create_properties);
  EXPECT_EQ(machine.store.live_allocations(), 0U);
  expect_ok(create(granule, device_memory));
  expect_ok(create(granule, changed(device_memory, [](auto& p) { p.allocFlags.compressionType = 1; })));
  const CUmemAllocationProp host_memory = at(CU_MEM_LOCATION_TYPE_HOST_NUMA);
  expect_answer(create(granule, changed(host_memory, [](auto& p) { p.allocFlags.compressionType = 1; })), invalid,
                Rule::create_properties);
  expect_ok(create(granule, host_memory));
  int metadata = 0;
  expect_answer(create(granule, changed(device_memory, [&](auto& p) { p.win32HandleMetaData = &metadata; })), invalid,
                Rule::create_properties);
}

TEST(Create, WantsALocationThatExists) {
  ModelMachine machine;
  CUmemGenericAllocationHandle handle = 0;
  const auto create = [&](CUmemLocationType type, int id) {
    const CUmemAllocationProp properties = at(type, id);
    return machine.memory.create(&handle, granule, &properties, 0);
  };
  expect_answer(create(CU_MEM_LOCATION_TYPE_DEVICE, 2), CUDA_ERROR_INVALID_DEVICE, Rule::create_location);
  expect_answer(create(CU_MEM_LOCATION_TYPE_DEVICE, -1), CUDA_ERROR_INVALID_DEVICE, Rule::create_location);
  expect_answer(create(CU_MEM_LOCATION_TYPE_HOST_NUMA, 1), invalid, Rule::create_location);
  expect_answer(create(CU_MEM_LOCATION_TYPE_HOST_NUMA, -1), invalid, Rule::create_location);
  expect_answer(create(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0), invalid, Rule::create_location);
  expect_answer(create(CU_MEM_LOCATION_TYPE_INVALID, 0), invalid, Rule::create_location);
  expect_ok(create(CU_MEM_LOCATION_TYPE_DEVICE, 1));
  expect_ok(create(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0));
  expect_ok(create(CU_MEM_LOCATION_TYPE_HOST, 0));
}

TEST(Create, WantsHandleTypesThatThePlatformHas) {
  const auto create = [](const char* name, CUmemLocationType type, int types) {
    ModelMachine machine(profile(name));
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = at(type, 0, types);
    return machine.memory.create(&handle, granule, &properties, 0);
  };
  constexpr auto device = CU_MEM_LOCATION_TYPE_DEVICE;
  expect_answer(create("h200-580", device, CU_MEM_HANDLE_TYPE_WIN32), invalid, Rule::create_handle_type);
  expect_answer(create("h200-580", device, CU_MEM_HANDLE_TYPE_WIN32_KMT), invalid, Rule::create_handle_type);
  expect_answer(create("h200-580", CU_MEM_LOCATION_TYPE_HOST, 1), invalid, Rule::create_handle_type);
  expect_ok(create("h200-580", CU_MEM_LOCATION_TYPE_HOST_NUMA, 1));
  expect_answer(create("h200-580", device, CU_MEM_HANDLE_TYPE_FABRIC), CUDA_ERROR_NOT_PERMITTED,
                Rule::create_fabric_permission);
  expect_ok(create("gb200", device, CU_MEM_HANDLE_TYPE_FABRIC | CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  expect_answer(create("no-descriptors", device, 1), CUDA_ERROR_NOT_SUPPORTED, Rule::create_handle_type);
  expect_answer(create("no-descriptors", device, 8), CUDA_ERROR_NOT_SUPPORTED, Rule::create_handle_type);
  expect_ok(create("no-descriptors", device, 0));
}

TEST(Create, IsLimitedByWhatIsFree) {
  ModelMachine machine;
  CUmemGenericAllocationHandle handle = 0;
  expect_answer(machine.memory.create(&handle, 17 * granule, &device_memory, 0), CUDA_ERROR_OUT_OF_MEMORY,
                Rule::create_capacity);
  expect_ok(machine.memory.create(&handle, 16 * granule, &device_memory, 0));
  CUmemGenericAllocationHandle second = 0;
  expect_answer(machine.memory.create(&second, granule, &device_memory, 0), CUDA_ERROR_OUT_OF_MEMORY,
                Rule::create_capacity);
  expect_ok(machine.memory.release(handle));
  expect_ok(machine.memory.create(&second, granule, &device_memory, 0));
  const CUmemAllocationProp host = at(CU_MEM_LOCATION_TYPE_HOST);
  expect_answer(machine.memory.create(&second, 17 * granule, &host, 0), CUDA_ERROR_OUT_OF_MEMORY,
                Rule::create_capacity);
}

TEST(Properties, AreReportedAsGrantedAndImportedOnesShowNoHandleType) {
  ModelMachine machine;
  CUmemAllocationProp properties = at(CU_MEM_LOCATION_TYPE_DEVICE, 1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  properties.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
  const auto handle = machine.create(properties);
  CUmemAllocationProp seen{};
  expect_answer(machine.memory.properties(nullptr, handle), invalid, Rule::output_pointer);
  expect_answer(machine.memory.properties(&seen, handle + 1), invalid, Rule::handle_live);
  expect_ok(machine.memory.properties(&seen, handle));
  EXPECT_EQ(seen.location.id, 1);
  EXPECT_EQ(seen.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(seen.allocFlags.compressionType, CU_MEM_ALLOCATION_COMP_GENERIC);
  Allocation* allocation = nullptr;
  expect_ok(machine.memory.check_export(handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0, &allocation));
  const auto imported = machine.memory.import(*allocation);
  EXPECT_NE(imported, handle);
  expect_ok(machine.memory.properties(&seen, imported));
  EXPECT_EQ(seen.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
}

TEST(Properties, AreReportedWithoutWhatTheDriverDoesNotKnow) {
  ModelMachine machine;
  CUmemAllocationProp properties = at(CU_MEM_LOCATION_TYPE_HOST, 7, 48);
  properties.allocFlags.gpuDirectRDMACapable = 2;
  properties.allocFlags.usage = 3;
  CUmemAllocationProp seen{};
  expect_ok(machine.memory.properties(&seen, machine.create(properties)));
  EXPECT_EQ(seen.location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  EXPECT_EQ(seen.location.id, 0);
  EXPECT_EQ(seen.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
  EXPECT_EQ(seen.allocFlags.gpuDirectRDMACapable, 1);
  EXPECT_EQ(seen.allocFlags.usage, 1);
}

TEST(Withholding, TakesFeaturesAwaySilently) {
  CUmemAllocationProp asked = device_memory;
  asked.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
  CUmemAllocationProp both = asked;
  both.allocFlags.gpuDirectRDMACapable = 1;
  const auto granted = [&](const Configuration& configuration, CUmemAllocationProp properties) {
    ModelMachine machine(configuration);
    CUmemAllocationProp seen{};
    expect_ok(machine.memory.properties(&seen, machine.create(properties)));
    return std::pair<int, int>(seen.allocFlags.compressionType, seen.allocFlags.gpuDirectRDMACapable);
  };
  Configuration configuration = model_configuration(Mode::strict);
  EXPECT_EQ(granted(configuration, asked), std::pair(1, 0));
  EXPECT_EQ(granted(configuration, both), std::pair(0, 1));  // GPUDirect RDMA takes the place of compression
  configuration.profile.behaviour.withhold_compression = true;
  EXPECT_EQ(granted(configuration, asked), std::pair(0, 0));
  EXPECT_EQ(granted(configuration, both), std::pair(0, 1));
  configuration.profile.behaviour.withhold_rdma = true;
  EXPECT_EQ(granted(configuration, both), std::pair(0, 0));
  EXPECT_EQ(granted(profile("no-compression"), both), std::pair(0, 1));
  EXPECT_EQ(granted(profile("no-rdma"), both), std::pair(1, 0));
}

TEST(NoVmm, SaysSoToEveryFirstStep) {
  ModelMachine machine(profile("no-vmm"));
  std::size_t size = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  expect_answer(machine.memory.granularity(&size, &device_memory, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                CUDA_ERROR_NOT_SUPPORTED, Rule::vmm_supported);
  expect_answer(machine.memory.create(&handle, granule, &device_memory, 0), CUDA_ERROR_NOT_SUPPORTED,
                Rule::vmm_supported);
  expect_answer(machine.memory.reserve(&address, granule, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED, Rule::vmm_supported);
}

TEST(HandleLife, EndsWithTheLastReferenceAndMapping) {
  ModelMachine machine;
  const auto handle = machine.create(device_memory);
  const CUdeviceptr address = machine.reserve();
  expect_ok(machine.memory.map(address, granule, 0, handle, 0));
  expect_ok(machine.memory.release(handle));
  expect_answer(machine.memory.release(handle), invalid, Rule::handle_live);
  EXPECT_EQ(machine.store.live_allocations(), 1U) << "the mapping keeps it";
  CUmemGenericAllocationHandle retained = 0;
  expect_ok(machine.memory.retain(&retained, address + granule - 1));
  EXPECT_EQ(retained, handle);
  expect_ok(machine.memory.unmap(address, granule));
  EXPECT_EQ(machine.store.live_allocations(), 1U) << "the retained handle keeps it";
  expect_ok(machine.memory.release(handle));
  EXPECT_EQ(machine.store.live_allocations(), 0U);
  EXPECT_EQ(machine.memory.live_handles(), 0U);
  expect_answer(machine.memory.map(address, granule, 0, handle, 0), invalid, Rule::handle_live);
}

TEST(HandleLife, SaysWhetherAHandleWasReleasedOrNeverWas) {
  ModelMachine machine;
  const auto handle = machine.create(device_memory);
  expect_ok(machine.memory.release(handle));
  EXPECT_NE(machine.memory.release(handle).detail.find("was released"), std::string::npos);
  EXPECT_NE(machine.memory.release(handle + 1).detail.find("never was"), std::string::npos);
  EXPECT_NE(machine.memory.release(0).detail.find("never was"), std::string::npos);
  EXPECT_NE(machine.create(device_memory), handle) << "a handle is never used twice";
}

TEST(Retain, WantsAMappedAddress) {
  ModelMachine machine;
  const CUdeviceptr address = machine.mapped(device_memory);
  CUmemGenericAllocationHandle handle = 0;
  expect_answer(machine.memory.retain(nullptr, address), invalid, Rule::output_pointer);
  expect_answer(machine.memory.retain(&handle, address + granule), invalid, Rule::retain_mapped);
  expect_answer(machine.memory.retain(&handle, 0), invalid, Rule::retain_mapped);
  expect_ok(machine.memory.retain(&handle, address));
}

TEST(Reserve, ChecksSizeAlignmentHintAndFlags) {
  ModelMachine machine;
  CUdeviceptr address = 0;
  const auto reserve = [&](std::size_t bytes, std::size_t alignment, CUdeviceptr hint, unsigned long long flags) {
    return machine.memory.reserve(&address, bytes, alignment, hint, flags);
  };
  expect_answer(machine.memory.reserve(nullptr, granule, 0, 0, 0), invalid, Rule::output_pointer);
  expect_answer(reserve(granule, 0, 0, 1), invalid, Rule::flags_zero);
  expect_answer(reserve(0, 0, 0, 0), invalid, Rule::reserve_size);
  expect_answer(reserve(granule + 4096, 0, 0, 0), invalid, Rule::reserve_size);
  expect_answer(reserve(granule, 3 * granule, 0, 0), invalid, Rule::reserve_alignment);
  expect_answer(reserve(granule, std::size_t{1} << 63, 0, 0), invalid, Rule::reserve_alignment);
  expect_answer(reserve(granule, 0, 4096, 0), invalid, Rule::reserve_hint);
  expect_answer(reserve(granule, 4 * granule, 6 * granule, 0), invalid, Rule::reserve_hint);
  expect_answer(reserve(granule, 0, CUdeviceptr{1} << 62, 0), CUDA_ERROR_OUT_OF_MEMORY, Rule::reserve_space);
  expect_answer(reserve(granule, std::size_t{1} << 46, 0, 0), CUDA_ERROR_OUT_OF_MEMORY, Rule::reserve_space);
  expect_answer(reserve(65 * granule, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY, Rule::reserve_space);
  expect_answer(reserve(~std::size_t{0} - granule + 1, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY, Rule::reserve_space);
  EXPECT_EQ(machine.memory.live_reservations(), 0U);
  expect_ok(reserve(64 * granule, 0, 0, 0));
  expect_ok(machine.memory.free(address, 64 * granule));
  expect_ok(reserve(granule, 16 * granule, 0, 0));
  EXPECT_EQ(address % (16 * granule), 0U);
  expect_ok(reserve(granule, 4096, 0, 0));
}

TEST(Reserve, HonoursAFreeHintUnlessToldNotTo) {
  const CUdeviceptr hint = 40 * granule;
  CUdeviceptr first = 0, second = 0;
  ModelMachine machine;
  expect_ok(machine.memory.reserve(&first, granule, 0, hint, 0));
  expect_ok(machine.memory.reserve(&second, granule, 0, hint, 0));
  EXPECT_EQ(first, hint);
  EXPECT_NE(second, hint) << "a taken hint is silently replaced";
  Configuration ignoring = model_configuration(Mode::strict);
  ignoring.profile.behaviour.ignore_address_hints = true;
  ModelMachine other(ignoring);
  expect_ok(other.memory.reserve(&first, granule, 0, hint, 0));
  EXPECT_NE(first, hint);
}

TEST(Free, WantsAWholeReservationWithoutMappings) {
  ModelMachine machine;
  const auto handle = machine.create(device_memory);
  const CUdeviceptr address = machine.reserve(2 * granule);
  expect_answer(machine.memory.free(address, granule), invalid, Rule::free_whole_reservation);
  expect_answer(machine.memory.free(address, 0), invalid, Rule::free_whole_reservation);
  expect_answer(machine.memory.free(address + granule, granule), invalid, Rule::free_whole_reservation);
  expect_answer(machine.memory.free(0, granule), invalid, Rule::free_whole_reservation);
  expect_ok(machine.memory.map(address + granule, granule, 0, handle, 0));
  expect_answer(machine.memory.free(address, 2 * granule), invalid, Rule::free_unmapped);
  expect_ok(machine.memory.unmap(address + granule, granule));
  expect_ok(machine.memory.free(address, 2 * granule));
  expect_answer(machine.memory.free(address, 2 * granule), invalid, Rule::free_whole_reservation);
}

TEST(Map, ChecksItsArguments) {
  ModelMachine machine;
  const auto handle = machine.create(device_memory, 2 * granule);
  const CUdeviceptr address = machine.reserve(8 * granule);
  const auto map = [&](CUdeviceptr where, std::size_t bytes, std::size_t offset = 0, unsigned long long flags = 0) {
    return machine.memory.map(where, bytes, offset, handle, flags);
  };
  expect_answer(map(address, 2 * granule, 0, 1), invalid, Rule::flags_zero);
  expect_answer(map(address, 0), invalid, Rule::map_in_reservation);
  expect_answer(map(address + 8 * granule, 2 * granule), invalid, Rule::map_in_reservation);
  expect_answer(map(address + 65536, 2 * granule), invalid, Rule::map_address_aligned);
  expect_answer(map(address, granule), CUDA_ERROR_NOT_SUPPORTED, Rule::map_whole_allocation);
  expect_answer(map(address, 3 * granule), CUDA_ERROR_NOT_SUPPORTED, Rule::map_whole_allocation);
  expect_answer(map(address, granule, granule), CUDA_ERROR_NOT_SUPPORTED, Rule::map_whole_allocation);
  expect_answer(machine.memory.map(address, granule, 0, 12345, 0), invalid, Rule::handle_live);
  EXPECT_EQ(machine.memory.live_mappings(), 0U);
  expect_ok(map(address + granule, 2 * granule));
  for (const CUdeviceptr where : {address, address + granule, address + 2 * granule})
    expect_answer(map(where, 2 * granule), invalid, Rule::map_free_addresses);
  expect_ok(map(address + 3 * granule, 2 * granule));
}

TEST(Map, PastTheEndOfItsReservationIsRefusedStrictlyAndWarnedOfFaithfully) {
  ModelMachine strict_machine;
  const auto handle = strict_machine.create(device_memory, 2 * granule);
  const CUdeviceptr address = strict_machine.reserve(2 * granule);
  expect_answer(strict_machine.memory.map(address + granule, 2 * granule, 0, handle, 0), invalid,
                Rule::map_inside_one_reservation);
  expect_ok(strict_machine.memory.map(address, 2 * granule, 0, handle, 0));

  ModelMachine faithful(model_configuration(Mode::faithful));
  const auto same = faithful.create(device_memory, 2 * granule);
  const CUdeviceptr first = faithful.reserve(2 * granule), next = faithful.reserve(granule);
  ASSERT_EQ(next, first + 2 * granule);
  expect_ok(faithful.memory.map(first + granule, 2 * granule, 0, same, 0));
  EXPECT_EQ(faithful.warnings, std::vector{Rule::map_inside_one_reservation});
  expect_answer(faithful.memory.free(next, granule), invalid, Rule::free_unmapped);
  expect_ok(faithful.memory.unmap(first + granule, 2 * granule));
  expect_ok(faithful.memory.free(next, granule));
}

// What a mapping covers past its reservation is given to nobody else while it is mapped.
TEST(Map, PastTheEndOfItsReservationKeepsTheAddressesThatItCovers) {
  ModelMachine machine(model_configuration(Mode::faithful));
  DeviceHeap heap(granule, machine.store, machine.addresses);
  const auto handle = machine.create(device_memory, 5 * granule);
  const CUdeviceptr first = machine.reserve(2 * granule);
  CUdeviceptr between = 0;
  expect_ok(machine.memory.reserve(&between, granule, 0, first + 3 * granule, 0));
  ASSERT_EQ(between, first + 3 * granule);
  const std::uint64_t free_before = machine.addresses.largest_free_piece();
  expect_ok(machine.memory.map(first + granule, 5 * granule, 0, handle, 0));
  const CUdeviceptr begin = first + granule, end = begin + 5 * granule;
  const auto outside = [&](CUdeviceptr address) { return address + granule <= begin || address >= end; };
  for (const CUdeviceptr hint : {first + 2 * granule, first + 4 * granule, first + 5 * granule}) {
    CUdeviceptr address = 0;
    expect_ok(machine.memory.reserve(&address, granule, 0, hint, 0));
    EXPECT_TRUE(outside(address)) << address;
    expect_ok(machine.memory.free(address, granule));
  }
  std::vector<CUdeviceptr> reserved, allocated;
  for (int index = 0; index < 4; ++index) {
    reserved.push_back(machine.reserve());
    EXPECT_TRUE(outside(reserved.back())) << reserved.back();
    CUdeviceptr address = 0;
    expect_ok(heap.allocate(&address, granule, 0, 1));
    EXPECT_TRUE(outside(address)) << address;
    allocated.push_back(address);
  }
  for (const CUdeviceptr address : reserved) expect_ok(machine.memory.free(address, granule));
  for (const CUdeviceptr address : allocated) expect_ok(heap.free(address));
  expect_ok(machine.memory.unmap(begin, 5 * granule));
  EXPECT_EQ(machine.addresses.largest_free_piece(), free_before);
  CUdeviceptr address = 0;
  expect_ok(machine.memory.reserve(&address, granule, 0, first + 2 * granule, 0));
  EXPECT_EQ(address, first + 2 * granule);
}

TEST(Map, PastTheEndOfItsReservationCannotCoverMemoryOfTheHeap) {
  ModelMachine machine(model_configuration(Mode::faithful));
  DeviceHeap heap(granule, machine.store, machine.addresses);
  const auto handle = machine.create(device_memory, 4 * granule);
  const CUdeviceptr range = machine.reserve(2 * granule), gap = machine.reserve();
  CUdeviceptr allocation = 0;
  expect_ok(heap.allocate(&allocation, granule, 0, 1));
  ASSERT_EQ(allocation, gap + granule);
  expect_ok(machine.memory.free(gap, granule));
  const std::uint64_t free_before = machine.addresses.largest_free_piece();
  expect_answer(machine.memory.map(range + granule, 4 * granule, 0, handle, 0), invalid, Rule::map_free_addresses);
  EXPECT_EQ(machine.memory.live_mappings(), 0U);
  EXPECT_EQ(machine.addresses.largest_free_piece(), free_before);
  CUdeviceptr again = 0;
  expect_ok(machine.memory.reserve(&again, granule, 0, gap, 0));
  EXPECT_EQ(again, gap) << "nothing stays of what was refused";
  expect_ok(machine.memory.free(again, granule));
  expect_ok(heap.free(allocation));
  expect_ok(machine.memory.map(range + granule, 4 * granule, 0, handle, 0));
}

TEST(Unmap, TakesWholeMappingsAndToleratesHoles) {
  ModelMachine machine;
  const auto handle = machine.create(device_memory, 2 * granule);
  const CUdeviceptr address = machine.reserve(8 * granule);
  const auto unmap = [&](CUdeviceptr where, std::size_t bytes) { return machine.memory.unmap(where, bytes); };
  expect_ok(machine.memory.map(address, 2 * granule, 0, handle, 0));
  expect_ok(machine.memory.map(address + 4 * granule, 2 * granule, 0, handle, 0));
  expect_answer(unmap(address, 0), invalid, Rule::unmap_in_reservation);
  expect_answer(unmap(address, granule + 4096), invalid, Rule::unmap_whole_mappings);
  expect_answer(unmap(address + 4096, granule), invalid, Rule::unmap_whole_mappings);
  expect_answer(unmap(address + 8 * granule, granule), invalid, Rule::unmap_in_reservation);
  expect_answer(unmap(address, granule), invalid, Rule::unmap_whole_mappings);
  expect_answer(unmap(address + granule, granule), invalid, Rule::unmap_whole_mappings);
  expect_answer(unmap(address, 5 * granule), invalid, Rule::unmap_whole_mappings);
  EXPECT_EQ(machine.memory.live_mappings(), 2U);
  expect_ok(machine.memory.check_unmap(address, 8 * granule));
  EXPECT_EQ(machine.memory.live_mappings(), 2U) << "asking changes nothing";
  expect_ok(unmap(address, 8 * granule));
  EXPECT_EQ(machine.memory.live_mappings(), 0U);
  expect_ok(unmap(address, 2 * granule));
}

TEST(Unmap, OfRangesThatAreNotAlignedIsRefusedStrictlyAndWarnedOfFaithfully) {
  for (const Mode mode : {Mode::strict, Mode::faithful}) {
    ModelMachine machine(model_configuration(mode));
    const CUdeviceptr address = machine.reserve(4 * granule);
    const auto handle = machine.create(device_memory);
    expect_ok(machine.memory.map(address + granule, granule, 0, handle, 0));
    const Answer unaligned = machine.memory.unmap(address + 4096, 2 * granule);
    if (mode == Mode::strict) {
      expect_answer(unaligned, invalid, Rule::unmap_aligned);
      EXPECT_EQ(machine.memory.live_mappings(), 1U);
      expect_ok(machine.memory.unmap(address, 2 * granule));
      EXPECT_EQ(machine.warnings, std::vector<Rule>{});
    } else {
      expect_ok(unaligned);
      EXPECT_EQ(machine.warnings, std::vector<Rule>{Rule::unmap_aligned});
    }
    EXPECT_EQ(machine.memory.live_mappings(), 0U);
  }
}

TEST(Unmap, OfSizesThatWrapAroundIsRefusedStrictlyAndDoesNothingFaithfully) {
  for (const Mode mode : {Mode::strict, Mode::faithful}) {
    ModelMachine machine(model_configuration(mode));
    const CUdeviceptr address = machine.mapped(device_memory);
    const Answer wrapped = machine.memory.unmap(address, ~std::size_t{0} - granule + 1);
    EXPECT_EQ(machine.memory.live_mappings(), 1U);
    if (mode == Mode::strict) {
      expect_answer(wrapped, invalid, Rule::range_fits);
    } else {
      expect_ok(wrapped);
      EXPECT_EQ(machine.warnings, std::vector<Rule>{Rule::range_fits});
    }
    expect_ok(machine.memory.unmap(address, granule));
    EXPECT_EQ(machine.memory.live_mappings(), 0U);
  }
}

TEST(SetAccess, AcrossAHoleIsRefusedStrictlyAndStopsThereFaithfully) {
  const CUmemAccessDesc grant{device_0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  for (const Mode mode : {Mode::strict, Mode::faithful}) {
    ModelMachine machine(model_configuration(mode));
    const CUdeviceptr address = machine.reserve(4 * granule);
    const auto handle = machine.create(device_memory);
    for (const std::uint64_t place : {0, 1, 3})
      expect_ok(machine.memory.map(address + place * granule, granule, 0, handle, 0));
    const Answer across = machine.memory.set_access(address, 4 * granule, &grant, 1);
    if (mode == Mode::strict) {
      expect_answer(across, invalid, Rule::access_no_hole);
      EXPECT_EQ(machine.access(address, device_0), 0U);
      expect_ok(machine.memory.set_access(address, 2 * granule, &grant, 1));
    } else {
      expect_ok(across);
      EXPECT_EQ(machine.warnings, std::vector<Rule>{Rule::access_no_hole});
    }
    EXPECT_EQ(machine.access(address + granule, device_0), 3U);
    EXPECT_EQ(machine.access(address + 3 * granule, device_0), 0U);
  }
}

TEST(SetAccess, WantsWholeMappingsAtBothEnds) {
  ModelMachine machine;
  const auto handle = machine.create(device_memory, 2 * granule);
  const CUdeviceptr address = machine.reserve(8 * granule);
  const CUmemAccessDesc grant{device_0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const auto set = [&](CUdeviceptr where, std::size_t bytes) {
    return machine.memory.set_access(where, bytes, &grant, 1);
  };
  expect_answer(set(address, 2 * granule), invalid, Rule::access_whole_mappings);
  expect_ok(machine.memory.map(address, 2 * granule, 0, handle, 0));
  expect_ok(machine.memory.map(address + 4 * granule, 2 * granule, 0, handle, 0));
  for (const auto& [offset, granules] : {std::pair{0, 1}, {1, 1}, {0, 3}, {2, 4}, {0, 5}, {0, 0}, {2, 1}})
    expect_answer(
        set(address + static_cast<CUdeviceptr>(offset) * granule, static_cast<std::size_t>(granules) * granule),
        invalid, Rule::access_whole_mappings);
  expect_answer(set(address + 65536, 2 * granule), invalid, Rule::access_whole_mappings);
  expect_answer(set(address, granule + 1), invalid, Rule::access_whole_mappings);
  // Ranges that wrap around would end before they begin, in another mapping.
  expect_answer(set(address + 4 * granule, ~std::size_t{0} - 2 * granule + 1), invalid, Rule::access_whole_mappings);
  EXPECT_EQ(machine.access(address, device_0), 0U);
  expect_ok(set(address, 2 * granule));
  expect_ok(set(address + 4 * granule, 2 * granule));
  EXPECT_EQ(machine.access(address, device_0), 3U);
  EXPECT_EQ(machine.access(address + 5 * granule, device_0), 3U);
  EXPECT_EQ(machine.access(address, device_1), 0U);
}

TEST(SetAccess, WantsGoodDescriptorsAndOneBadOneChangesNothing) {
  ModelMachine machine;
  const CUdeviceptr address = machine.mapped(device_memory);
  const auto set = [&](const std::vector<CUmemAccessDesc>& descriptors) {
    return machine.memory.set_access(address, granule, descriptors.data(), descriptors.size());
  };
  const auto grant = [](CUmemLocationType type, int id, int flags) {
    return CUmemAccessDesc{{type, id}, static_cast<CUmemAccess_flags>(flags)};
  };
  constexpr auto device = CU_MEM_LOCATION_TYPE_DEVICE;
  expect_answer(machine.memory.set_access(address, granule, nullptr, 1), invalid, Rule::access_descriptors);
  const CUmemAccessDesc good = grant(device, 0, 3);
  expect_answer(machine.memory.set_access(address, granule, &good, 0), invalid, Rule::access_descriptors);
  for (const auto& [bad, code, rule] :
       {std::tuple{grant(device, 2, 3), invalid, Rule::access_descriptors},
        {grant(device, -1, 3), invalid, Rule::access_descriptors},
        {grant(device, 1, 2), invalid, Rule::access_descriptors},
        {grant(device, 1, 4), invalid, Rule::access_descriptors},
        {grant(CU_MEM_LOCATION_TYPE_INVALID, 0, 3), invalid, Rule::access_descriptors},
        {grant(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0, 3), invalid, Rule::access_descriptors},
        {grant(CU_MEM_LOCATION_TYPE_HOST, 0, 2), invalid, Rule::access_descriptors}}) {
    expect_answer(set({good, bad}), code, rule);
    EXPECT_EQ(machine.access(address, device_0), 0U);
  }
  expect_ok(set({good, grant(device, 1, 1)}));
  EXPECT_EQ(machine.access(address, device_0), 3U);
  EXPECT_EQ(machine.access(address, device_1), 1U);
  expect_ok(set({grant(device, 0, 3), grant(device, 0, 1)}));
  EXPECT_EQ(machine.access(address, device_0), 1U) << "the later one of a location counts";
  expect_ok(set({grant(device, 0, 0)}));
  EXPECT_EQ(machine.access(address, device_0), 0U);
  EXPECT_EQ(machine.access(address, device_1), 1U) << "others keep theirs";
}

// As recorded: the driver goes through a list that has no bad descriptor up to the one that lets the host into device
// memory; what comes before that is done.
TEST(SetAccess, OfTheHostToDeviceMemoryStopsThere) {
  for (const CUmemLocationType host : {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA})
    for (const auto rights : {CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}) {
      ModelMachine machine;
      const CUdeviceptr address = machine.mapped(device_memory);
      const auto set = [&](const std::vector<CUmemAccessDesc>& descriptors) {
        return machine.memory.set_access(address, granule, descriptors.data(), descriptors.size());
      };
      const CUmemAccessDesc to_host{{host, 0}, rights};
      const CUmemAccessDesc to_first{device_0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      const CUmemAccessDesc to_second{device_1, CU_MEM_ACCESS_FLAGS_PROT_READ};
      expect_answer(set({to_host, to_first}), CUDA_ERROR_NOT_SUPPORTED, Rule::access_host_location);
      EXPECT_EQ(machine.access(address, device_0), 0U);
      expect_answer(set({to_first, to_host, to_second}), CUDA_ERROR_NOT_SUPPORTED, Rule::access_host_location);
      EXPECT_EQ(machine.access(address, device_0), 3U);
      EXPECT_EQ(machine.access(address, device_1), 0U);
      EXPECT_EQ(machine.memory.find_mapping(address)->rights.get(Accessor::host()), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    }
}

// As recorded: it has none, and to take them from it is no mistake.
TEST(SetAccess, TakesNothingFromTheHostThatDeviceMemoryIsClosedTo) {
  ModelMachine machine;
  const CUdeviceptr address = machine.mapped(device_memory);
  const CUmemAccessDesc descriptors[] = {{{CU_MEM_LOCATION_TYPE_HOST, 0}, CU_MEM_ACCESS_FLAGS_PROT_NONE},
                                         {{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, CU_MEM_ACCESS_FLAGS_PROT_NONE},
                                         {device_0, CU_MEM_ACCESS_FLAGS_PROT_READ}};
  expect_ok(machine.memory.set_access(address, granule, descriptors, 3));
  EXPECT_EQ(machine.access(address, device_0), 1U);
  EXPECT_EQ(machine.memory.find_mapping(address)->rights.get(Accessor::host()), CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

TEST(SetAccess, FreshMappingsHaveNone) {
  ModelMachine machine;
  const auto handle = machine.create(device_memory);
  const CUdeviceptr address = machine.reserve();
  const CUmemAccessDesc grant{device_0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  for (int round = 0; round < 2; ++round) {
    expect_ok(machine.memory.map(address, granule, 0, handle, 0));
    EXPECT_EQ(machine.access(address, device_0), 0U);
    expect_ok(machine.memory.set_access(address, granule, &grant, 1));
    expect_ok(machine.memory.unmap(address, granule));
  }
}

TEST(SetAccess, NeedsDevicesThatReachEachOther) {
  Configuration apart = model_configuration(Mode::strict);
  apart.no_peer_access = {{1, 0}};
  const CUmemAccessDesc other{device_1, CU_MEM_ACCESS_FLAGS_PROT_READ};
  ModelMachine machine(apart);
  const CUdeviceptr device_range = machine.mapped(device_memory);
  const CUdeviceptr host_range = machine.mapped(at(CU_MEM_LOCATION_TYPE_HOST));
  expect_answer(machine.memory.set_access(device_range, granule, &other, 1), CUDA_ERROR_INVALID_DEVICE,
                Rule::access_peer);
  expect_ok(machine.memory.set_access(host_range, granule, &other, 1));
  ModelMachine together;
  expect_ok(together.memory.set_access(together.mapped(device_memory), granule, &other, 1));
}

TEST(SetAccess, FailsWhereItIsToldTo) {
  CUmemAllocationProp rdma = device_memory;
  rdma.allocFlags.gpuDirectRDMACapable = 1;
  const CUmemAccessDesc grant{device_0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  Configuration failing = model_configuration(Mode::strict);
  failing.profile.behaviour.fail_set_access_on_rdma_memory = true;
  ModelMachine on_rdma(failing);
  expect_answer(on_rdma.memory.set_access(on_rdma.mapped(rdma), granule, &grant, 1), CUDA_ERROR_UNKNOWN,
                Rule::rights_on_behaviour);
  expect_ok(on_rdma.memory.set_access(on_rdma.mapped(device_memory), granule, &grant, 1));
  failing.profile.behaviour.fail_set_access = true;
  ModelMachine always(failing);
  expect_answer(always.memory.set_access(always.mapped(device_memory), granule, &grant, 1), CUDA_ERROR_UNKNOWN,
                Rule::rights_on_behaviour);
}

TEST(FabricCreation, FailsWhereItIsToldTo) {
  Configuration failing = profile("gb200");
  const CUmemAllocationProp fabric = at(CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_HANDLE_TYPE_FABRIC);
  CUmemGenericAllocationHandle handle = 0;
  ModelMachine working(failing);
  expect_ok(working.memory.create(&handle, granule, &fabric, 0));
  failing.profile.behaviour.fabric_creation_out_of_memory = true;
  ModelMachine machine(failing);
  expect_answer(machine.memory.create(&handle, granule, &fabric, 0), CUDA_ERROR_OUT_OF_MEMORY,
                Rule::rights_on_behaviour);
  expect_ok(machine.memory.create(&handle, granule, &device_memory, 0));
}

TEST(HostViews, FollowTheHostsRights) {
  ModelMachine machine;
  const CUdeviceptr address = machine.mapped(at(CU_MEM_LOCATION_TYPE_HOST_NUMA));
  const auto grant = [&](CUmemAccess_flags flags) {
    const CUmemAccessDesc access{the_host, flags};
    expect_ok(machine.memory.set_access(address, granule, &access, 1));
  };
  grant(CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(machine.host_view.seen.at(address), CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(machine.access(address, the_host), 1U);
  EXPECT_EQ(machine.access(address, {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}), 1U) << "the host has one page table";
  grant(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(machine.host_view.seen.at(address), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  grant(CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(machine.host_view.seen.at(address), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  expect_ok(machine.memory.unmap(address, granule));
  EXPECT_TRUE(machine.host_view.seen.empty());
}

TEST(HostViews, ThatCannotBeMadeLeaveEverythingAsItWas) {
  for (int before_failure = 0; before_failure < 3; ++before_failure) {
    ModelMachine machine;
    const auto handle = machine.create(at(CU_MEM_LOCATION_TYPE_HOST));
    const CUdeviceptr address = machine.reserve(3 * granule);
    for (int index = 0; index < 3; ++index)
      expect_ok(machine.memory.map(address + static_cast<CUdeviceptr>(index) * granule, granule, 0, handle, 0));
    const CUmemAccessDesc reading[] = {{the_host, CU_MEM_ACCESS_FLAGS_PROT_READ}};
    expect_ok(machine.memory.set_access(address, granule, reading, 1));
    const auto seen_before = machine.host_view.seen;
    const CUmemAccessDesc writing[] = {{device_0, CU_MEM_ACCESS_FLAGS_PROT_READ},
                                       {the_host, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    machine.host_view.refuse_once_after = before_failure;
    expect_answer(machine.memory.set_access(address, 3 * granule, writing, 2), CUDA_ERROR_OPERATING_SYSTEM,
                  Rule::operating_system);
    for (int index = 0; index < 3; ++index) {
      const CUdeviceptr where = address + static_cast<CUdeviceptr>(index) * granule;
      EXPECT_EQ(machine.access(where, device_0), 0U);
      EXPECT_EQ(machine.access(where, the_host), index == 0 ? 1U : 0U);
      const auto seen = machine.host_view.seen.find(where);
      const auto rights = seen == machine.host_view.seen.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : seen->second;
      EXPECT_EQ(rights, index == 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE);
    }
    expect_ok(machine.memory.set_access(address, 3 * granule, writing, 2));
    EXPECT_EQ(machine.access(address + 2 * granule, {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}), 3U);
  }
}

TEST(GetAccess, WantsAMappedAddressAndALocationThatExists) {
  ModelMachine machine;
  const CUdeviceptr address = machine.mapped(device_memory);
  unsigned long long flags = 99;
  const auto get = [&](const CUmemLocation& location, CUdeviceptr where) {
    return machine.memory.get_access(&flags, &location, where);
  };
  expect_answer(machine.memory.get_access(nullptr, &device_0, address), invalid, Rule::output_pointer);
  expect_answer(machine.memory.get_access(&flags, nullptr, address), invalid, Rule::output_pointer);
  expect_answer(get({CU_MEM_LOCATION_TYPE_DEVICE, 2}, address), CUDA_ERROR_INVALID_DEVICE, Rule::access_query);
  expect_answer(get({CU_MEM_LOCATION_TYPE_INVALID, 0}, address), CUDA_ERROR_INVALID_DEVICE, Rule::access_query);
  EXPECT_EQ(flags, 99U);
  expect_answer(get(device_0, address + granule), invalid, Rule::access_query);
  EXPECT_EQ(flags, 0U);
  expect_ok(get(device_0, address + granule - 1));
}

TEST(GetAccess, OfTheHostIsNoMoreThanAnyDeviceHas) {
  constexpr CUmemLocation node{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  ModelMachine machine;
  const CUdeviceptr address = machine.mapped(at(CU_MEM_LOCATION_TYPE_HOST_NUMA));
  const CUmemAccessDesc host{node, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const CUmemAccessDesc reader{device_0, CU_MEM_ACCESS_FLAGS_PROT_READ};
  expect_ok(machine.memory.set_access(address, granule, &host, 1));
  EXPECT_EQ(machine.access(address, the_host), 3U);
  expect_ok(machine.memory.set_access(address, granule, &reader, 1));
  EXPECT_EQ(machine.access(address, the_host), 1U);
  EXPECT_EQ(machine.access(address, node), 3U);
}

TEST(CheckExport, WantsALiveHandleThatMayBeExportedSo) {
  ModelMachine machine(profile("gb200"));
  const auto plain = machine.create(device_memory);
  const auto both = machine.create(at(CU_MEM_LOCATION_TYPE_DEVICE, 0, 9));
  Allocation* allocation = nullptr;
  const auto check = [&](CUmemGenericAllocationHandle handle, int type, unsigned long long flags = 0) {
    return machine.memory.check_export(handle, static_cast<CUmemAllocationHandleType>(type), flags, &allocation);
  };
  expect_answer(check(77, 1), invalid, Rule::handle_live);
  expect_answer(check(both, 1, 1), invalid, Rule::flags_zero);
  expect_answer(check(plain, 1), invalid, Rule::export_requested);
  for (const int type : {0, 2, 4, 9}) expect_answer(check(both, type), invalid, Rule::export_requested);
  expect_ok(check(both, 8));
  expect_ok(check(both, 1));
  const auto imported = machine.memory.import(*allocation);
  expect_answer(check(imported, 1), invalid, Rule::export_imported);
}

TEST(Resolve, FindsBytesThatAreMappedAndOpen) {
  ModelMachine machine;
  const auto first = machine.create(device_memory), second = machine.create(device_memory);
  const CUdeviceptr address = machine.reserve(4 * granule);
  expect_ok(machine.memory.map(address, granule, 0, first, 0));
  expect_ok(machine.memory.map(address + granule, granule, 0, second, 0));
  const CUmemAccessDesc reading{device_0, CU_MEM_ACCESS_FLAGS_PROT_READ};
  const CUmemAccessDesc writing{device_0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  expect_ok(machine.memory.set_access(address, granule, &writing, 1));
  std::vector<Segment> segments;
  const auto resolve = [&](CUdeviceptr where, std::uint64_t bytes, bool write, Accessor who = Accessor::device(0)) {
    segments.clear();
    return machine.memory.resolve(where, bytes, who, write, segments);
  };
  const auto refused = [&](const Answer& answer) {
    expect_answer(answer, invalid, Rule::access_needed);
    EXPECT_TRUE(segments.empty());
  };
  refused(resolve(address, 2 * granule, false));
  expect_ok(machine.memory.set_access(address + granule, granule, &reading, 1));
  refused(resolve(address, 2 * granule, true));
  refused(resolve(address, 2 * granule, false, Accessor::device(1)));
  refused(resolve(address, 2 * granule + 1, false));
  refused(resolve(address + 2, ~std::uint64_t{0} - 1, false));
  expect_ok(resolve(address, granule, true));
  expect_ok(resolve(address + granule - 16, 48, false));
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_EQ(segments[0].offset, granule - 16);
  EXPECT_EQ(segments[0].bytes, 16U);
  EXPECT_EQ(segments[1].offset, 0U);
  EXPECT_EQ(segments[1].bytes, 32U);
  EXPECT_NE(segments[0].allocation, segments[1].allocation);
}

}  // namespace
}  // namespace cuvmm::emulator::model
