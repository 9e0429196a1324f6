#include "conformance/cases/kernels.hpp"

#include <atomic>

namespace cuvmm::conformance {

const char* kernel_image() {
  return R"ptx(.version 7.0
.target sm_70
.address_size 64

.visible .entry conformance_store(.param .u64 address, .param .u32 value)
{
  .reg .b64 %place;
  .reg .b32 %word;
  ld.param.u64 %place, [address];
  ld.param.u32 %word, [value];
  st.volatile.u32 [%place], %word;
  ret;
}

.visible .entry conformance_load(.param .u64 source, .param .u64 destination)
{
  .reg .b64 %from, %to;
  .reg .b32 %word;
  ld.param.u64 %from, [source];
  ld.param.u64 %to, [destination];
  ld.volatile.u32 %word, [%from];
  st.volatile.u32 [%to], %word;
  ret;
}

.visible .entry conformance_spin(.param .u64 flags, .param .u64 watched)
{
  .reg .b64 %flags, %watched, %start, %now, %elapsed;
  .reg .b32 %word;
  .reg .pred %stop;
  ld.param.u64 %flags, [flags];
  ld.param.u64 %watched, [watched];
  mov.u64 %start, %globaltimer;
  st.volatile.u32 [%flags], 1;
  membar.sys;
again:
  ld.volatile.u32 %word, [%watched];
  ld.volatile.u32 %word, [%flags+4];
  setp.ne.u32 %stop, %word, 0;
  @%stop bra done;
  mov.u64 %now, %globaltimer;
  sub.u64 %elapsed, %now, %start;
  setp.lt.u64 %stop, %elapsed, 5000000000;
  @%stop bra again;
done:
  ret;
}
)ptx";
}

Kernels::Kernels(Environment& cuda) : cuda_(cuda) {
  cuda.expect("module", cuda->cuModuleLoadData(&module_, kernel_image()));
  for (const char* name : {store_kernel, load_kernel, spin_kernel}) {
    CUfunction function = nullptr;
    cuda.expect("function", cuda->cuModuleGetFunction(&function, module_, name));
    functions_.emplace(name, function);
  }
}

CUfunction Kernels::function(std::string_view name) const {
  return functions_.find(name)->second;
}

CUresult Kernels::launch(std::string_view name, CUstream stream, void** parameters) const {
  return cuda_->cuLaunchKernel(function(name), 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
}

CUresult Kernels::store(CUdeviceptr address, unsigned value, CUstream stream) const {
  void* parameters[] = {&address, &value};
  return launch(store_kernel, stream, parameters);
}

CUresult Kernels::load(CUdeviceptr source, CUdeviceptr destination, CUstream stream) const {
  void* parameters[] = {&source, &destination};
  return launch(load_kernel, stream, parameters);
}

CUresult Kernels::spin(const std::atomic<unsigned>* flags, CUdeviceptr watched, CUstream stream) const {
  CUdeviceptr flag_address = as_address(flags);
  void* parameters[] = {&flag_address, &watched};
  return launch(spin_kernel, stream, parameters);
}

}  // namespace cuvmm::conformance
