// Memory that is unmapped or revoked while work that uses it is enqueued and has not begun.
#include <atomic>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/kernels.hpp"

namespace cuvmm::conformance {

namespace {

// A word of page-locked memory, seen by the device, that holds a stream until the case stores 1 in it. Unlike a host
// function it holds nothing of the driver's.
class FlagGate {
 public:
  explicit FlagGate(Environment& cuda)
      : cuda_(cuda), flag_(static_cast<std::atomic<unsigned>*>(cuda.allocate_host(4096))) {
    *flag_ = 0;
  }

  void block(CUstream stream) const {
    cuda_.expect("wait", cuda_->cuStreamWaitValue32(stream, as_address(flag_), 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  void open() const { *flag_ = 1; }

 private:
  Environment& cuda_;
  std::atomic<unsigned>* flag_;
};

// What a case's work needs; made before the stream is held, as making it may wait for the device.
struct Scene {
  Kernels kernels;
  CUdeviceptr address;  // one granule, mapped and granted: what is taken away
  CUdeviceptr other;    // one granule that stays
  void* host;           // one granule, page-locked
  CUstream stream;

  explicit Scene(Environment& cuda)
      : kernels(cuda),
        address(cuda.mapped()),
        other(cuda.mapped()),
        host(cuda.allocate_host(granule)),
        stream(cuda.stream()) {}
};

struct Work {
  const char* name;
  CUresult (*enqueue)(Environment&, const Scene&);
};

constexpr Work works[] = {
    {"memset",
     [](Environment& cuda, const Scene& s) { return cuda->cuMemsetD8Async(s.address, 1, granule, s.stream); }},
    {"copy_on_device",
     [](Environment& cuda, const Scene& s) { return cuda->cuMemcpyDtoDAsync(s.address, s.other, granule, s.stream); }},
    {"copy_on_device_from",
     [](Environment& cuda, const Scene& s) { return cuda->cuMemcpyDtoDAsync(s.other, s.address, granule, s.stream); }},
    {"copy_from_host",
     [](Environment& cuda, const Scene& s) { return cuda->cuMemcpyHtoDAsync(s.address, s.host, granule, s.stream); }},
    {"kernel_store", [](Environment&, const Scene& s) { return s.kernels.store(s.address, 5, s.stream); }},
    {"write_value",
     [](Environment& cuda, const Scene& s) { return cuda->cuStreamWriteValue32(s.stream, s.address, 5, 0); }},
};

struct Change {
  const char* name;
  CUresult (*make)(Environment&, CUdeviceptr);
};

constexpr Change changes[] = {
    {"unmapped", [](Environment& cuda, CUdeviceptr address) { return cuda->cuMemUnmap(address, granule); }},
    {"revoked",
     [](Environment& cuda, CUdeviceptr address) {
       const CUmemAccessDesc none = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
       return cuda->cuMemSetAccess(address, granule, &none, 1);
     }},
};

// The results of enqueueing the work, of the change behind its back, of waiting for the work once it may begin, and of
// an allocation after that, which shows whether the context is broken.
std::string changed_under(Environment& cuda, const Work& work, const Change& change) {
  const Scene scene{cuda};
  const FlagGate gate{cuda};
  gate.block(scene.stream);
  const CUresult enqueued = work.enqueue(cuda, scene);
  const CUresult changed = change.make(cuda, scene.address);
  gate.open();
  const CUresult finished = cuda->cuStreamSynchronize(scene.stream);
  CUdeviceptr allocated = 0;
  return spaces({enqueued, changed, finished, cuda->cuMemAlloc(&allocated, mebibyte)});
}

}  // namespace

void add_pending_cases(Table& table) {
  for (const Work& work : works)
    for (const Change& change : changes)
      table.add(
          std::string{"pending."} + work.name + "." + change.name,
          [work, change](Environment& cuda) { return changed_under(cuda, work, change); }, needs_alone);
}

}  // namespace cuvmm::conformance
