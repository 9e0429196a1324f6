#include "pointer_query.hpp"

#include <array>

#include "driver/call.hpp"

namespace cuvmm {

using namespace abi;

Result<PointerFacts> query_pointer(const Driver& driver, DeviceAddress address) {
  std::array attributes{
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
      CU_POINTER_ATTRIBUTE_CONTEXT,
      CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
      CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
      CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
      CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
      CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,
  };
  // Each value has eight bytes at most; a shorter one leaves the rest of its word zero, on a little-endian machine.
  std::array<unsigned long long, attributes.size()> words{};
  std::array<void*, attributes.size()> data{};
  for (std::size_t index = 0; index < words.size(); ++index) data[index] = &words[index];
  const auto asked = driver::try_call<driver::EntryPoint::cuPointerGetAttributes>(
      driver.interface(), static_cast<unsigned>(attributes.size()), attributes.data(), data.data(), address.value);
  if (!asked) return asked.failure();

  PointerFacts facts;
  facts.memory_type = static_cast<CUmemorytype>(words[0]);
  facts.device = static_cast<int>(words[1]);
  facts.managed = (words[2] & 0xff) != 0;
  facts.in_pool = words[3] != 0;
  facts.has_context = words[4] != 0;
  facts.legacy_ipc_capable = (words[5] & 0xff) != 0;
  facts.rdma_capable = (words[6] & 0xff) != 0;
  facts.handle_types = static_cast<unsigned>(words[7]);
  facts.base = DeviceAddress{words[8]};
  facts.size = words[9];
  facts.range_base = DeviceAddress{words[10]};
  facts.range_size = words[11];
  return facts;
}

}  // namespace cuvmm
