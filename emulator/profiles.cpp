// The machines that can be emulated.
#include <array>
#include <utility>

#include "driver/abi.hpp"
#include "emulator/configuration.hpp"

namespace cuvmm::emulator {
namespace {

using namespace cuvmm::abi;

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;

Profile h200_580() {
  Profile profile;
  profile.name = "h200-580";
  profile.summary = "NVIDIA H200, driver 580 (CUDA 13.0), Linux, NVLink, no IMEX channel; without multicast";
  profile.driver_version = 13000;
  profile.device_name = "NVIDIA H200";
  profile.device_memory = 150109880320;
  profile.device_memory_reserved = 552402944;
  profile.granularity = 2 * mebibyte;
  profile.host_memory = std::uint64_t{128} * 1024 * mebibyte;
  profile.multicast_granularity = 2 * mebibyte;
  profile.multicast_recommended = 512 * mebibyte;
  profile.multicast_slots = 128;
  profile.attributes = {
#define CUVMM_ATTRIBUTE(name, value) {CU_DEVICE_ATTRIBUTE_##name, value},
#include "emulator/profiles/h200-580/attributes.def"
  };
  // The one attribute that differs from the recorded machine, on which no multicast call may be made: this profile is
  // what was recorded, and nothing of multicast was.
  profile.attributes[CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED] = 0;
  return profile;
}

Profile without(std::string name, std::string summary, std::initializer_list<CUdevice_attribute> attributes) {
  Profile profile = h200_580();
  profile.name = std::move(name);
  profile.summary = std::move(summary);
  for (const CUdevice_attribute attribute : attributes) profile.attributes[attribute] = 0;
  return profile;
}

Profile no_vmm() {
  return without("no-vmm", "a device without virtual memory management",
                 {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED,
                  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                  CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                  CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED});
}

Profile no_descriptors() {
  return without("no-descriptors", "memory cannot be exported as a descriptor",
                 {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED});
}

Profile no_compression() {
  return without("no-compression", "a device without compressible memory",
                 {CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED});
}

Profile no_rdma() {
  return without("no-rdma", "virtual memory that network cards cannot reach",
                 {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED});
}

Profile gb200() {
  Profile profile = h200_580();
  profile.name = "gb200";
  profile.summary =
      "a Grace-Blackwell-like machine: an IMEX channel, and fabric handles for device and host NUMA memory";
  profile.device_name = "NVIDIA GB200";
  profile.imex_channel = true;
  profile.host_numa_nodes = 2;
  profile.attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = 10;
  profile.attributes[CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED] = 1;
  profile.attributes[CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED] = 1;
  profile.attributes[CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS] = 1;
  profile.attributes[CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES] = 1;
  return profile;
}

Profile h200_multicast() {
  Profile profile = h200_580();
  profile.name = "h200-multicast";
  profile.summary = "h200-580 with multicast between its devices, as the documentation has it";
  profile.attributes[CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED] = 1;
  return profile;
}

Profile h200_590() {
  Profile profile = h200_multicast();
  profile.name = "h200-590";
  profile.summary = "h200-multicast with driver 590 (CUDA 13.1), whose binds to multicast objects can name the device";
  profile.driver_version = 13010;
  return profile;
}

constexpr std::array builders{h200_580, no_vmm, no_descriptors, no_compression,
                              no_rdma,  gb200,  h200_multicast, h200_590};

}  // namespace

std::vector<std::string> profile_names() {
  std::vector<std::string> names;
  names.reserve(builders.size());
  for (const auto build : builders) names.push_back(build().name);
  return names;
}

std::optional<Profile> find_profile(std::string_view name) {
  for (const auto build : builders)
    if (Profile profile = build(); profile.name == name) return profile;
  return std::nullopt;
}

}  // namespace cuvmm::emulator
