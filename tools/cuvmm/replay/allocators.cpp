#include "replay/allocator.hpp"

namespace cuvmm::replay {

const std::vector<AllocatorEntry>& all_allocators() {
  static const std::vector<AllocatorEntry> all{
      {"cuMemAlloc", "cuMemAlloc and cuMemFree for each", make_plain_allocator},
      {"cuMemAllocAsync", "a memory pool of the driver that keeps what is freed", make_ordered_allocator},
      {"caching", "best fit with splitting on segments of cuMemAlloc, as frameworks do", make_caching_allocator},
      {"Pool", "cuvmm's pool: address holes are filled by mapping other memory there", make_pool_allocator},
  };
  return all;
}

}  // namespace cuvmm::replay
