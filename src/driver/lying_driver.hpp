// A driver that is wrong on purpose, so that a check can be seen to catch it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "cuvmm/unique_descriptor.hpp"
#include "driver/decorator.hpp"
#include "driver/lies.hpp"

namespace cuvmm::driver {

// Thread-safe. An asynchronous copy that is lied about is waited for, except into a stream that is capturing, where it
// is left alone.
class LyingDriver final : public Decorator<LyingDriver> {
 public:
  LyingDriver(std::shared_ptr<Interface> next, const Lies& lies);

  [[nodiscard]] std::string description() const override;

  CUresult cuMemcpy(CUdeviceptr destination, CUdeviceptr source, size_t bytes) override;
  CUresult cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) override;
  CUresult cuMemcpyDtoH(void* destination, CUdeviceptr source, size_t bytes) override;
  CUresult cuMemcpyDtoHAsync(void* destination, CUdeviceptr source, size_t bytes, CUstream stream) override;
  CUresult cuMemcpyDtoD(CUdeviceptr destination, CUdeviceptr source, size_t bytes) override;
  CUresult cuMemcpyDtoDAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) override;
  CUresult cuMemcpyPeer(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                        CUcontext source_context, size_t bytes) override;
  CUresult cuMemcpyPeerAsync(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                             CUcontext source_context, size_t bytes, CUstream stream) override;

  CUresult cuEventQuery(CUevent event) override;

  // Memory between processes: lying_driver_sharing.cpp.
  CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
                       unsigned long long flags) override;
  CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                        CUmemAllocationHandleType type, unsigned long long flags) override;
  CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                          CUmemAllocationHandleType type) override;

  // Multicast objects, and kernels: lying_driver_multicast.cpp.
  CUresult cuMulticastCreate(CUmemGenericAllocationHandle* multicast, const CUmulticastObjectProp* properties) override;
  CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle multicast, CUdevice device) override;
  CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
                              CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
                              unsigned long long flags) override;
  CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle multicast, CUdevice device, size_t multicast_offset,
                                 CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
                                 unsigned long long flags) override;
  CUresult cuMulticastUnbind(CUmemGenericAllocationHandle multicast, CUdevice device, size_t multicast_offset,
                             size_t size) override;
  CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) override;
  CUresult cuLaunchKernel(CUfunction function, unsigned int grid_dim_x, unsigned int grid_dim_y,
                          unsigned int grid_dim_z, unsigned int block_dim_x, unsigned int block_dim_y,
                          unsigned int block_dim_z, unsigned int shared_mem_bytes, CUstream stream,
                          void** kernel_params, void** extra) override;

  // Memory, its mappings and grants: lying_driver_memory.cpp.
  CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t size, size_t alignment, CUdeviceptr hint,
                               unsigned long long flags) override;
  CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size) override;
  CUresult cuMemRelease(CUmemGenericAllocationHandle handle) override;
  CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                  CUmemGenericAllocationHandle handle) override;
  CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags) override;
  CUresult cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc* descriptors, size_t count) override;
  CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer) override;
  CUresult cuMemUnmap(CUdeviceptr pointer, size_t size) override;

 private:
  // A grant to read that was passed on as one to read and write.
  struct HiddenGrant {
    CUdeviceptr begin;
    CUdeviceptr end;
    CUmemLocation location;
  };

  // What lies at an address, or lay there last.
  struct Mapped {
    std::size_t size;
    CUmemGenericAllocationHandle handle;
    bool released;
  };

  // What a call of cuMemSetAccess is lied about.
  struct Pretence {
    bool granted_before;  // so that devices get nothing
    bool read_only;       // which is not enforced
  };

  [[nodiscard]] bool flips_this_copy(CUresult result, std::size_t bytes);
  [[nodiscard]] bool flips_this_streamed_copy(CUresult result, std::size_t bytes, CUstream stream);
  [[nodiscard]] bool waited_for(CUstream stream);
  void flip_on_host(void* destination, std::size_t bytes);
  void flip_anywhere(CUdeviceptr destination, std::size_t bytes);
  void flip_in_context(CUcontext context, CUdeviceptr destination, std::size_t bytes);

  [[nodiscard]] std::vector<CUmemAccessDesc> passed_on(const CUmemAccessDesc* descriptors, size_t count,
                                                       const Pretence& pretence) const;
  [[nodiscard]] bool forges_read_only(CUdeviceptr pointer) const;
  [[nodiscard]] bool begins_reservation(CUdeviceptr pointer) const;
  [[nodiscard]] bool separates(CUdeviceptr pointer, CUmemGenericAllocationHandle handle) const;
  [[nodiscard]] bool is_mapped_twice(CUmemGenericAllocationHandle handle) const;
  struct Reservation {
    CUdeviceptr begin = 0;
    std::size_t size = 0;
  };
  [[nodiscard]] Reservation reservation_of(CUdeviceptr pointer) const;  // nothing for one that is not known of
  void remember_grants(CUdeviceptr pointer, size_t size, const CUmemAccessDesc* descriptors, size_t count,
                       bool read_only_is_forged);
  void forget(CUdeviceptr pointer, size_t size);

  // Each maps other memory than it should, or answers an error and has mapped nothing.
  [[nodiscard]] CUresult map_behind(CUdeviceptr pointer, size_t size, CUmemGenericAllocationHandle handle);
  [[nodiscard]] CUresult map_neighbour(CUdeviceptr pointer, size_t size, CUmemGenericAllocationHandle neighbour);
  [[nodiscard]] CUresult map_new(CUdeviceptr pointer, size_t size, const CUmemAllocationProp& properties);
  [[nodiscard]] CUresult map_former(CUdeviceptr pointer, size_t size, CUmemGenericAllocationHandle handle,
                                    CUmemGenericAllocationHandle* mapped);
  [[nodiscard]] CUresult map_separately(CUdeviceptr pointer, size_t size, CUmemGenericAllocationHandle handle);

  [[nodiscard]] CUresult export_new_memory(void* shareable, CUmemGenericAllocationHandle like, size_t size);
  // Whether releasing the handle is to be forgotten; forgets the handle else.
  [[nodiscard]] bool keeps(CUmemGenericAllocationHandle handle);
  // Where the memory lay last, if those addresses are still reserved and it lies nowhere now; 0 else.
  [[nodiscard]] CUdeviceptr former_place(CUmemGenericAllocationHandle handle) const;

  // A descriptor, once more, from which memory was imported.
  struct Imported {
    CUmemGenericAllocationHandle handle;
    UniqueDescriptor descriptor;
  };

  // A multicast object that was created here.
  struct Object {
    std::size_t size = 0;
    std::size_t bound_wholly = 0;                                    // how often memory was bound to all of it
    std::map<CUdevice, CUmemGenericAllocationHandle> substitutes{};  // bound in place of other memory
  };
  [[nodiscard]] bool is_multicast(CUdeviceptr pointer) const;
  void forget_object(CUmemGenericAllocationHandle multicast);
  // Memory like the one that is to be bound to all of that object, in whose place it is bound; 0 where none is.
  // `device` becomes the one whose memory it is.
  [[nodiscard]] CUmemGenericAllocationHandle substitute(CUmemGenericAllocationHandle multicast,
                                                        CUmemGenericAllocationHandle memory, size_t size,
                                                        CUdevice* device);
  // Binds by `bind(memory, offset in it)`, what the lies leave of it.
  template <class Bind>
  CUresult bind_as_told(CUmemGenericAllocationHandle multicast, CUmemGenericAllocationHandle memory,
                        size_t memory_offset, size_t size, const Bind& bind);

  Lies lies_;
  std::mutex mutex_;
  std::uint64_t copies_ = 0;
  std::vector<HiddenGrant> hidden_;
  std::set<CUdeviceptr> granted_;
  std::map<CUdeviceptr, std::size_t> reserved_;
  std::map<CUdeviceptr, Mapped> mapped_;
  std::map<CUdeviceptr, Mapped> unmapped_;                         // whose handles are not released
  std::multimap<CUdeviceptr, CUmemGenericAllocationHandle> kept_;  // to be released with those addresses
  std::map<CUmemGenericAllocationHandle, size_t> created_;
  std::set<CUmemGenericAllocationHandle> exported_;
  std::vector<Imported> imported_;
  bool has_exported_ = false;
  std::map<CUmemGenericAllocationHandle, Object> objects_;
  std::set<std::pair<CUmemGenericAllocationHandle, CUdevice>> added_;  // by the object's handle
  std::set<CUfunction> barriers_;                                      // kernels by which ranks wait
};

}  // namespace cuvmm::driver
