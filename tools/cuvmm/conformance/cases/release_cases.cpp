// cuMemRelease.
#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

void add_release_cases(Table& table) {
  table.add("release.ok", [](Environment& cuda) { return cuda->cuMemRelease(cuda.create(granule)); });
  table.add("release.zero", [](Environment& cuda) { return cuda->cuMemRelease(0); });
  table.add("release.garbage", [](Environment& cuda) { return cuda->cuMemRelease(0x777); });
  table.add("release.twice", [](Environment& cuda) {
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    return commas({cuda->cuMemRelease(handle), cuda->cuMemRelease(handle)});
  });
  table.add("release.mapped_keeps_data", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(granule);
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    cuda.map(address, granule, handle);
    cuda.grant(address, granule);
    cuda.write_word(address, 42);
    const CUresult released = cuda->cuMemRelease(handle);
    unsigned word = 0;
    const CUresult copied = cuda->cuMemcpyDtoH(&word, address, sizeof word);
    return spaces({released, slashes({copied, word})});
  });
  table.add("release.twice_while_mapped", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(granule);
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    cuda.map(address, granule, handle);
    return commas({cuda->cuMemRelease(handle), cuda->cuMemRelease(handle)});
  });
  table.add("release.no_context", [](Environment& cuda) {
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    cuda.make_current(nullptr);
    return cuda->cuMemRelease(handle);
  });
}

}  // namespace cuvmm::conformance
