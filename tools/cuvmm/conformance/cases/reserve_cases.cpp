// cuMemAddressReserve and cuMemAddressFree.
#include <limits>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

// Reserves, and tells whether an alignment or a hint that was asked for was obeyed.
std::string reserve(Environment& cuda, std::size_t size, std::size_t alignment = 0, CUdeviceptr hint = 0,
                    unsigned long long flags = 0) {
  CUdeviceptr address = 0;
  const CUresult result = cuda->cuMemAddressReserve(&address, size, alignment, hint, flags);
  std::string answer = result_name(result);
  if (result != CUDA_SUCCESS) return answer;
  if (alignment != 0) answer += address % alignment == 0 ? "/aligned" : "/misaligned";
  if (hint != 0) answer += address == hint ? "/hint" : "/elsewhere";
  return answer;
}

void add_size(Table& table, const std::string& id, std::size_t size) {
  table.add(id, [size](Environment& cuda) { return reserve(cuda, size); });
}

void add_sizes(Table& table) {
  add_size(table, "reserve.zero", 0);
  add_size(table, "reserve.one", 1);
  add_size(table, "reserve.1M", mebibyte);
  add_size(table, "reserve.2M+64K", granule + 65536);
  add_size(table, "reserve.all", std::numeric_limits<std::size_t>::max());
  for (const int power : {40, 44, 46, 47, 48, 50, 56, 63})
    add_size(table, "reserve.2^" + std::to_string(power), std::size_t{1} << power);
}

void add_alignments(Table& table) {
  const std::pair<const char*, std::size_t> alignments[] = {{"1", 1},
                                                            {"3", 3},
                                                            {"4096", 4096},
                                                            {"64K", 65536},
                                                            {"2M", granule},
                                                            {"4M", 2 * granule},
                                                            {"6M", 6 * mebibyte},
                                                            {"1G", gibibyte},
                                                            {"2^40", std::size_t{1} << 40},
                                                            {"2^46", std::size_t{1} << 46},
                                                            {"2^63", std::size_t{1} << 63}};
  for (const auto& [name, alignment] : alignments)
    table.add(std::string{"reserve.align_"} + name,
              [alignment = alignment](Environment& cuda) { return reserve(cuda, granule, alignment); });
}

void add_arguments(Table& table) {
  table.add("reserve.null", [](Environment& cuda) { return cuda->cuMemAddressReserve(nullptr, granule, 0, 0, 0); });
  for (const unsigned long long flags : {1, 2, 4})
    table.add("reserve.flags_" + std::to_string(flags),
              [flags](Environment& cuda) { return reserve(cuda, granule, 0, 0, flags); });
  table.add("reserve.no_context", [](Environment& cuda) {
    cuda.make_current(nullptr);
    return reserve(cuda, granule);
  });
  table.add("reserve.1000_of_1T", [](Environment& cuda) {
    int count = 0;
    CUdeviceptr address = 0;
    while (count < 1000 && cuda->cuMemAddressReserve(&address, std::size_t{1} << 40, 0, 0, 0) == CUDA_SUCCESS) ++count;
    return count < 64 ? "<64" : count < 1000 ? "64..999" : "1000";
  });
  table.add(
      "reserve.memory_accounted",
      [](Environment& cuda) {
        std::size_t before = 0;
        std::size_t after = 0;
        std::size_t total = 0;
        cuda.expect("info", cuda->cuMemGetInfo(&before, &total));
        cuda.reserve(std::size_t{1} << 40);
        cuda.expect("info", cuda->cuMemGetInfo(&after, &total));
        return before - after >= gibibyte / 4 ? "counted" : "not counted";
      },
      needs_alone);
}

// An address that was reserved a moment ago, with `size` free bytes after it.
CUdeviceptr freed_address(Environment& cuda, std::size_t size) {
  const CUdeviceptr address = cuda.reserve(size);
  cuda.expect("free", cuda->cuMemAddressFree(address, size));
  return address;
}

void add_hints(Table& table) {
  table.add("reserve.hint_taken", [](Environment& cuda) {
    const CUdeviceptr taken = cuda.reserve(8 * granule);
    return reserve(cuda, granule, 0, taken);
  });
  table.add("reserve.hint_inside_taken", [](Environment& cuda) {
    const CUdeviceptr taken = cuda.reserve(8 * granule);
    return reserve(cuda, granule, 0, taken + 2 * granule);
  });
  table.add("reserve.hint_tail_taken", [](Environment& cuda) {
    const CUdeviceptr address = freed_address(cuda, 8 * granule);
    const CUdeviceptr taken = cuda.reserve(granule, address + 4 * granule);
    if (taken != address + 4 * granule) return std::string{"the middle was not to be had"};
    return reserve(cuda, 8 * granule, 0, address);
  });
  table.add("reserve.hint_unaligned",
            [](Environment& cuda) { return reserve(cuda, granule, 0, freed_address(cuda, 8 * granule) + 4096); });
  table.add("reserve.hint_free",
            [](Environment& cuda) { return reserve(cuda, 8 * granule, 0, freed_address(cuda, 8 * granule)); });
  table.add("reserve.hint_free_middle", [](Environment& cuda) {
    return reserve(cuda, granule, 0, freed_address(cuda, 8 * granule) + 3 * granule);
  });
  table.add("reserve.hint_misaligned_for_alignment", [](Environment& cuda) {
    const std::size_t size = 2 * gibibyte;
    return reserve(cuda, granule, gibibyte, freed_address(cuda, size) / gibibyte * gibibyte + gibibyte + granule);
  });
  table.add("reserve.hint_high", [](Environment& cuda) { return reserve(cuda, granule, 0, 0x6000'0000'0000); });
  table.add("reserve.hint_low", [](Environment& cuda) { return reserve(cuda, granule, 0, granule); });
  table.add("reserve.hint_not_canonical",
            [](Environment& cuda) { return reserve(cuda, granule, 0, CUdeviceptr{1} << 62); });
  table.add("reserve.hint_host_memory", [](Environment& cuda) {
    static char buffer[4 * granule];
    return reserve(cuda, granule, 0, (as_address(buffer) + granule - 1) / granule * granule);
  });
  table.add("reserve.hint_device_allocation", [](Environment& cuda) {
    return reserve(cuda, granule, 0, cuda.allocate(8 * granule) / granule * granule);
  });
}

// Two reservations of one granule, the second right after the first; or {0, 0} if the driver does not allow that.
std::pair<CUdeviceptr, CUdeviceptr> adjacent_reservations(Environment& cuda) {
  const CUdeviceptr address = freed_address(cuda, 2 * granule);
  const CUdeviceptr first = cuda.reserve(granule, address);
  const CUdeviceptr second = cuda.reserve(granule, address + granule);
  if (first != address || second != address + granule) return {0, 0};
  return {first, second};
}

CUresult grant_all(Environment& cuda, CUdeviceptr mapping) {
  const CUmemAccessDesc access = access_of(0);
  return cuda->cuMemSetAccess(mapping, 2 * granule, &access, 1);
}

// Rights, handle, range and mapping of an address, numbers counted from `begin` in granules.
std::string told_of(Environment& cuda, CUdeviceptr begin, CUdeviceptr address) {
  std::string answer = cuda.access(address);
  CUmemGenericAllocationHandle handle = 0;
  answer += " " + result_name(cuda->cuMemRetainAllocationHandle(&handle, as_pointer(address)));
  CUdeviceptr base = 0;
  std::size_t size = 0;
  const CUresult found = cuda->cuMemGetAddressRange(&base, &size, address);
  answer += " " + slashes({found, found == CUDA_SUCCESS ? (base - begin) / granule : 0, size / granule});
  for (const CUpointer_attribute attribute :
       {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
        CU_POINTER_ATTRIBUTE_MAPPING_SIZE}) {
    unsigned long long value = 0;
    const CUresult got = cuda->cuPointerGetAttribute(&value, attribute, address);
    const bool number = value < begin;
    answer += " " + slashes({got, (number ? value : value - begin) / granule});
  }
  return answer;
}

void add_frees(Table& table) {
  table.add("free.ok", [](Environment& cuda) { return cuda->cuMemAddressFree(cuda.reserve(granule), granule); });
  table.add("free.zero_size", [](Environment& cuda) { return cuda->cuMemAddressFree(cuda.reserve(granule), 0); });
  table.add("free.null", [](Environment& cuda) { return cuda->cuMemAddressFree(0, granule); });
  table.add("free.nowhere", [](Environment& cuda) { return cuda->cuMemAddressFree(nowhere, granule); });
  table.add("free.mapped", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    cuda.map_new(address, granule);
    return cuda->cuMemAddressFree(address, 4 * granule);
  });
  table.add("free.mapped_then_unmapped", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    return spaces({cuda->cuMemAddressFree(address, granule), cuda->cuMemUnmap(address, granule),
                   cuda->cuMemAddressFree(address, granule)});
  });
  table.add("free.twice",
            [](Environment& cuda) { return cuda->cuMemAddressFree(freed_address(cuda, granule), granule); });
  table.add("free.first_half", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    return spaces({cuda->cuMemAddressFree(address, 2 * granule), cuda->cuMemAddressFree(address, 4 * granule)});
  });
  table.add("free.second_half", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    return spaces(
        {cuda->cuMemAddressFree(address + 2 * granule, 2 * granule), cuda->cuMemAddressFree(address, 4 * granule)});
  });
  table.add("free.larger", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    return spaces({cuda->cuMemAddressFree(address, 5 * granule), cuda->cuMemAddressFree(address, 4 * granule)});
  });
  table.add("free.unaligned_size", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    return spaces({cuda->cuMemAddressFree(address, 4 * granule - 1), cuda->cuMemAddressFree(address, 4 * granule)});
  });
  table.add("free.device_allocation",
            [](Environment& cuda) { return cuda->cuMemAddressFree(cuda.allocate(granule), granule); });
}

void add_neighbours(Table& table) {
  table.add("free.two_adjacent_at_once", [](Environment& cuda) {
    const auto [first, second] = adjacent_reservations(cuda);
    if (first == 0) return std::string{"not adjacent"};
    return spaces({cuda->cuMemAddressFree(first, 2 * granule), cuda->cuMemAddressFree(second, granule),
                   cuda->cuMemAddressFree(first, granule)});
  });
  table.add("map.over_two_reservations", [](Environment& cuda) {
    const auto [first, second] = adjacent_reservations(cuda);
    if (first == 0) return std::string{"not adjacent"};
    const CUmemAccessDesc access = access_of(0);
    return spaces({cuda->cuMemMap(first, 2 * granule, 0, cuda.create(2 * granule), 0),
                   cuda->cuMemSetAccess(first, 2 * granule, &access, 1), cuda.access(second),
                   cuda->cuMemAddressFree(second, granule), cuda->cuMemUnmap(first, 2 * granule),
                   cuda->cuMemAddressFree(second, granule)});
  });
  table.add("access.over_two_reservations", [](Environment& cuda) {
    const auto [first, second] = adjacent_reservations(cuda);
    if (first == 0) return std::string{"not adjacent"};
    cuda.map_new(first, granule);
    cuda.map_new(second, granule);
    const CUmemAccessDesc access = access_of(0);
    return spaces({cuda->cuMemSetAccess(first, 2 * granule, &access, 1), cuda.access(first), cuda.access(second)});
  });
  table.add("unmap.over_two_reservations", [](Environment& cuda) {
    const auto [first, second] = adjacent_reservations(cuda);
    if (first == 0) return std::string{"not adjacent"};
    cuda.map_new(first, granule);
    cuda.map_new(second, granule);
    return spaces({cuda->cuMemUnmap(first, 2 * granule), cuda.access(first), cuda.access(second)});
  });
  table.add("copy.over_two_reservations", [](Environment& cuda) {
    const auto [first, second] = adjacent_reservations(cuda);
    if (first == 0) return std::string{"not adjacent"};
    cuda.map_new(first, granule);
    cuda.map_new(second, granule);
    cuda.grant(first, granule);
    cuda.grant(second, granule);
    return std::string{result_name(cuda->cuMemsetD8(first, 7, 2 * granule))};
  });
  // What is told of the second half of a mapping, which lies behind its reservation: in the next one, or in none.
  for (const bool reserved : {true, false})
    table.add(std::string{"pointer.behind_its_reservation_"} + (reserved ? "in_the_next" : "in_none"),
              [reserved](Environment& cuda) {
                const auto [first, second] = adjacent_reservations(cuda);
                if (first == 0) return std::string{"not adjacent"};
                if (!reserved) cuda.expect("free", cuda->cuMemAddressFree(second, granule));
                cuda.map_new(first, 2 * granule);
                const CUresult granted = grant_all(cuda, first);
                return spaces({granted, told_of(cuda, first, second)});
              });
}

}  // namespace

void add_reserve_cases(Table& table) {
  add_sizes(table);
  add_alignments(table);
  add_arguments(table);
  add_hints(table);
  add_frees(table);
  add_neighbours(table);
}

}  // namespace cuvmm::conformance
