// cuMemGetAllocationGranularity.
#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

std::string granularity(Environment& cuda, const CUmemAllocationProp& properties, int option) {
  std::size_t value = 0;
  const CUresult result =
      cuda->cuMemGetAllocationGranularity(&value, &properties, static_cast<CUmemAllocationGranularity_flags>(option));
  return slashes({result, value});
}

CUresult minimum_result(Environment& cuda, const CUmemAllocationProp& properties) {
  std::size_t value = 0;
  return cuda->cuMemGetAllocationGranularity(&value, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

void add_refusals(Table& table) {
  table.add("gran.bad_option", [](Environment& cuda) {
    std::size_t value = 0;
    const CUmemAllocationProp properties = device_memory();
    return cuda->cuMemGetAllocationGranularity(&value, &properties, static_cast<CUmemAllocationGranularity_flags>(5));
  });
  table.add("gran.null", [](Environment& cuda) {
    const CUmemAllocationProp properties = device_memory();
    return cuda->cuMemGetAllocationGranularity(nullptr, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  });
  table.add("gran.null_prop", [](Environment& cuda) {
    std::size_t value = 0;
    return cuda->cuMemGetAllocationGranularity(&value, nullptr, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  });
  table.add("gran.device_99", [](Environment& cuda) { return minimum_result(cuda, device_memory(99)); });
  table.add("gran.type_0", [](Environment& cuda) {
    CUmemAllocationProp properties = device_memory();
    properties.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    return minimum_result(cuda, properties);
  });
}

void add_values(Table& table) {
  table.add("gran.fabric", [](Environment& cuda) {
    return granularity(cuda, device_memory(0, CU_MEM_HANDLE_TYPE_FABRIC), CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  });
  for (const int option : {0, 1}) {
    const std::string suffix = "_option_" + std::to_string(option);
    table.add("gran.device" + suffix,
              [option](Environment& cuda) { return granularity(cuda, device_memory(), option); });
    table.add("gran.compressed" + suffix, [option](Environment& cuda) {
      CUmemAllocationProp properties = device_memory();
      properties.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
      return granularity(cuda, properties, option);
    });
    for (const int type : {0, 2, 3, 4, 5})
      table.add("gran.location_type_" + std::to_string(type) + suffix, [type, option](Environment& cuda) {
        return granularity(cuda, host_memory(static_cast<CUmemLocationType>(type)), option);
      });
  }
  for (const int option : {-1, 2})
    table.add("gran.option_" + std::to_string(option),
              [option](Environment& cuda) { return granularity(cuda, device_memory(), option); });
  for (const int types : {1, 2, 9, 16})
    table.add("gran.handle_type_" + std::to_string(types),
              [types](Environment& cuda) { return granularity(cuda, device_memory(0, types), 0); });
}

}  // namespace

void add_granularity_cases(Table& table) {
  add_refusals(table);
  add_values(table);
}

}  // namespace cuvmm::conformance
