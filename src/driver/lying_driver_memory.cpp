// The lies about memory, its mappings and its grants.
#include <algorithm>
#include <iterator>

#include "driver/lying_driver.hpp"

namespace cuvmm::driver {

namespace {

bool same_place(const CUmemLocation& a, const CUmemLocation& b) {
  return a.type == b.type && a.id == b.id;
}

bool is_device(const CUmemAccessDesc& grant) {
  return grant.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

bool reads_only(const CUmemAccessDesc& grant) {
  return is_device(grant) && grant.flags == CU_MEM_ACCESS_FLAGS_PROT_READ;
}

}  // namespace

// Addresses.

CUresult LyingDriver::cuMemAddressReserve(CUdeviceptr* pointer, size_t size, size_t alignment, CUdeviceptr hint,
                                          unsigned long long flags) {
  const CUresult result = next().cuMemAddressReserve(pointer, size, alignment, hint, flags);
  if (result == CUDA_SUCCESS) {
    const std::lock_guard lock(mutex_);
    reserved_.insert_or_assign(*pointer, size);
  }
  return result;
}

CUresult LyingDriver::cuMemAddressFree(CUdeviceptr pointer, size_t size) {
  const CUresult result = next().cuMemAddressFree(pointer, size);
  if (result != CUDA_SUCCESS) return result;
  std::vector<CUmemGenericAllocationHandle> released;
  {
    const std::lock_guard lock(mutex_);
    reserved_.erase(pointer);
    unmapped_.erase(unmapped_.lower_bound(pointer), unmapped_.lower_bound(pointer + size));
    const auto end = kept_.lower_bound(pointer + size);
    for (auto each = kept_.lower_bound(pointer); each != end; each = kept_.erase(each))
      released.push_back(each->second);
  }
  for (const CUmemGenericAllocationHandle each : released) static_cast<void>(next().cuMemRelease(each));
  return result;
}

bool LyingDriver::begins_reservation(CUdeviceptr pointer) const {
  return reserved_.contains(pointer);
}

// Physical memory.

CUdeviceptr LyingDriver::former_place(CUmemGenericAllocationHandle handle) const {
  const auto has_it = [&](const auto& each) { return each.second.handle == handle; };
  if (std::any_of(mapped_.begin(), mapped_.end(), has_it)) return 0;
  const auto found = std::find_if(unmapped_.begin(), unmapped_.end(), has_it);
  return found == unmapped_.end() ? 0 : found->first;
}

CUresult LyingDriver::cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (keeps(handle)) return CUDA_SUCCESS;
  {
    const std::lock_guard lock(mutex_);
    const CUdeviceptr place = former_place(handle);
    if (place == 0 && lies_.keep_released_memory) return CUDA_SUCCESS;
    std::erase_if(unmapped_, [&](const auto& former) { return former.second.handle == handle; });
    for (auto& each : mapped_) each.second.released = each.second.released || each.second.handle == handle;
    if (place != 0 && lies_.keep_sleeping_memory) {
      kept_.emplace(place, handle);
      return CUDA_SUCCESS;
    }
  }
  return next().cuMemRelease(handle);
}

CUresult LyingDriver::cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                             CUmemGenericAllocationHandle handle) {
  const CUresult result = next().cuMemGetAllocationPropertiesFromHandle(properties, handle);
  if (lies_.claim_compression && result == CUDA_SUCCESS)
    properties->allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
  return result;
}

// Mappings.

LyingDriver::Reservation LyingDriver::reservation_of(CUdeviceptr pointer) const {
  auto found = reserved_.upper_bound(pointer);
  if (found == reserved_.begin()) return {};
  --found;
  return pointer - found->first < found->second ? Reservation{found->first, found->second} : Reservation{};
}

// Whether memory that lies elsewhere already is lied about at this address.
bool LyingDriver::separates(CUdeviceptr pointer, CUmemGenericAllocationHandle handle) const {
  const Reservation here = reservation_of(pointer);
  return std::any_of(mapped_.begin(), mapped_.end(), [&](const auto& each) {
    if (each.second.handle != handle) return false;
    const Reservation there = reservation_of(each.first);
    if (there.begin == here.begin) return lies_.separate_ring;
    return there.size < here.size ? lies_.separate_moved_memory : lies_.separate_aliases;
  });
}

bool LyingDriver::is_mapped_twice(CUmemGenericAllocationHandle handle) const {
  return std::count_if(mapped_.begin(), mapped_.end(), [&](const auto& each) { return each.second.handle == handle; }) >
         1;
}

// Behind other memory of the same reservation.
CUresult LyingDriver::map_behind(CUdeviceptr pointer, size_t size, CUmemGenericAllocationHandle handle) {
  CUmemGenericAllocationHandle neighbour = 0;
  void* const last_byte = reinterpret_cast<void*>(static_cast<std::uintptr_t>(pointer - 1));
  if (const CUresult none = next().cuMemRetainAllocationHandle(&neighbour, last_byte); none != CUDA_SUCCESS)
    return none;
  CUmemAllocationProp here{};
  CUmemAllocationProp before{};
  CUresult result = next().cuMemGetAllocationPropertiesFromHandle(&here, handle);
  if (result == CUDA_SUCCESS) result = next().cuMemGetAllocationPropertiesFromHandle(&before, neighbour);
  if (result == CUDA_SUCCESS) {
    const bool one_place = same_place(here.location, before.location);
    result = CUDA_ERROR_INVALID_VALUE;
    if (one_place && lies_.repeat_chunk) result = map_neighbour(pointer, size, neighbour);
    if (!one_place && lies_.gather_places) result = map_new(pointer, size, before);
  }
  static_cast<void>(next().cuMemRelease(neighbour));
  return result;
}

CUresult LyingDriver::map_neighbour(CUdeviceptr pointer, size_t size, CUmemGenericAllocationHandle neighbour) {
  {
    const std::lock_guard lock(mutex_);
    if (is_mapped_twice(neighbour)) return CUDA_ERROR_INVALID_VALUE;
  }
  return next().cuMemMap(pointer, size, 0, neighbour, 0);
}

CUresult LyingDriver::map_former(CUdeviceptr pointer, size_t size, CUmemGenericAllocationHandle handle,
                                 CUmemGenericAllocationHandle* mapped) {
  {
    const std::lock_guard lock(mutex_);
    const auto former = unmapped_.find(pointer);
    if (former == unmapped_.end() || former->second.size != size || former->second.handle == handle)
      return CUDA_ERROR_INVALID_VALUE;
    *mapped = former->second.handle;
  }
  return next().cuMemMap(pointer, size, 0, *mapped, 0);
}

CUresult LyingDriver::map_separately(CUdeviceptr pointer, size_t size, CUmemGenericAllocationHandle handle) {
  CUmemAllocationProp properties{};
  if (const CUresult unknown = next().cuMemGetAllocationPropertiesFromHandle(&properties, handle);
      unknown != CUDA_SUCCESS)
    return unknown;
  return map_new(pointer, size, properties);
}

CUresult LyingDriver::map_new(CUdeviceptr pointer, size_t size, const CUmemAllocationProp& properties) {
  CUmemGenericAllocationHandle other = 0;
  if (const CUresult none = next().cuMemCreate(&other, size, &properties, 0); none != CUDA_SUCCESS) return none;
  const CUresult mapped = next().cuMemMap(pointer, size, 0, other, 0);
  static_cast<void>(next().cuMemRelease(other));
  return mapped;
}

CUresult LyingDriver::cuMemMap(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                               unsigned long long flags) {
  bool within_reservation = false;
  bool separate = false;
  {
    const std::lock_guard lock(mutex_);
    within_reservation = !begins_reservation(pointer);
    separate = separates(pointer, handle);
  }
  CUmemGenericAllocationHandle shown = handle;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (within_reservation && (lies_.repeat_chunk || lies_.gather_places)) result = map_behind(pointer, size, handle);
  if (result != CUDA_SUCCESS && lies_.keep_replaced_memory) result = map_former(pointer, size, handle, &shown);
  if (result != CUDA_SUCCESS && separate) result = map_separately(pointer, size, handle);
  if (result != CUDA_SUCCESS) {
    shown = handle;
    result = next().cuMemMap(pointer, size, offset, handle, flags);
  }
  if (result == CUDA_SUCCESS) {
    const std::lock_guard lock(mutex_);
    mapped_.insert_or_assign(pointer, Mapped{size, shown, false});
    unmapped_.erase(pointer);
  }
  return result;
}

CUresult LyingDriver::cuMemUnmap(CUdeviceptr pointer, size_t size) {
  const CUresult result = next().cuMemUnmap(pointer, size);
  if (result == CUDA_SUCCESS) forget(pointer, size);
  return result;
}

void LyingDriver::forget(CUdeviceptr pointer, size_t size) {
  const std::lock_guard lock(mutex_);
  granted_.erase(granted_.lower_bound(pointer), granted_.lower_bound(pointer + size));
  std::erase_if(hidden_,
                [&](const HiddenGrant& grant) { return grant.begin >= pointer && grant.end <= pointer + size; });
  const auto begin = mapped_.lower_bound(pointer);
  const auto end = mapped_.lower_bound(pointer + size);
  for (auto each = begin; each != end; ++each)
    if (!each->second.released) unmapped_.insert_or_assign(each->first, each->second);
  mapped_.erase(begin, end);
}

// Grants.

bool LyingDriver::forges_read_only(CUdeviceptr pointer) const {
  const auto found = mapped_.find(pointer);
  const bool alias = found != mapped_.end() && std::any_of(mapped_.begin(), mapped_.end(), [&](const auto& each) {
                       return each.first != pointer && each.second.handle == found->second.handle;
                     });
  return alias ? lies_.ignore_read_only_alias : lies_.ignore_read_only;
}

std::vector<CUmemAccessDesc> LyingDriver::passed_on(const CUmemAccessDesc* descriptors, size_t count,
                                                    const Pretence& pretence) const {
  std::vector<CUmemAccessDesc> passed(descriptors, descriptors + count);
  if (lies_.ignore_host_grant)
    for (CUmemAccessDesc& each : passed)
      if (!is_device(each)) each.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  if (lies_.ignore_second_grant) {
    auto kept = std::find_if(passed.begin(), passed.end(), is_device);
    if (kept != passed.end() && !pretence.granted_before) ++kept;
    passed.erase(std::remove_if(kept, passed.end(), is_device), passed.end());
  }
  if (pretence.read_only)
    for (CUmemAccessDesc& each : passed)
      if (reads_only(each)) each.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return passed;
}

CUresult LyingDriver::cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc* descriptors,
                                     size_t count) {
  if (descriptors == nullptr || count == 0) return next().cuMemSetAccess(pointer, size, descriptors, count);
  Pretence pretence{};
  bool multicast = false;
  {
    const std::lock_guard lock(mutex_);
    multicast = is_multicast(pointer);
    pretence = {granted_.contains(pointer), forges_read_only(pointer)};
  }
  if (multicast) return next().cuMemSetAccess(pointer, size, descriptors, count);
  const std::vector<CUmemAccessDesc> passed = passed_on(descriptors, count, pretence);
  if (passed.empty()) return CUDA_SUCCESS;
  if (lies_.ignore_host_grant && !std::all_of(descriptors, descriptors + count, is_device))
    // A driver that refuses to let the host in lets nothing be granted to it: such a refusal is passed on.
    if (const CUresult refused = next().cuMemSetAccess(pointer, size, descriptors, count); refused != CUDA_SUCCESS)
      return refused;
  const CUresult result = next().cuMemSetAccess(pointer, size, passed.data(), passed.size());
  if (result == CUDA_SUCCESS) remember_grants(pointer, size, descriptors, count, pretence.read_only);
  return result;
}

void LyingDriver::remember_grants(CUdeviceptr pointer, size_t size, const CUmemAccessDesc* descriptors, size_t count,
                                  bool read_only_is_forged) {
  const std::lock_guard lock(mutex_);
  if (std::any_of(descriptors, descriptors + count, is_device)) granted_.insert(pointer);
  for (size_t index = 0; index < count; ++index) {
    const CUmemAccessDesc& grant = descriptors[index];
    std::erase_if(hidden_, [&](const HiddenGrant& hidden) {
      return same_place(hidden.location, grant.location) && hidden.begin >= pointer && hidden.end <= pointer + size;
    });
    if (read_only_is_forged && reads_only(grant)) hidden_.push_back({pointer, pointer + size, grant.location});
  }
}

CUresult LyingDriver::cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer) {
  const CUresult result = next().cuMemGetAccess(flags, location, pointer);
  if (result != CUDA_SUCCESS || *flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return result;
  const std::lock_guard lock(mutex_);
  const bool hidden = std::any_of(hidden_.begin(), hidden_.end(), [&](const HiddenGrant& grant) {
    return same_place(grant.location, *location) && grant.begin <= pointer && pointer < grant.end;
  });
  if (hidden) *flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  return result;
}

}  // namespace cuvmm::driver
