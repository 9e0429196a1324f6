// A driver that is wrong on purpose, so that a check can be seen to catch it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/decorator.hpp"

namespace cuvmm::driver {

// What to lie about; any of them together.
struct Lies {
  // One byte of what a copy out of device memory wrote is flipped: of each such copy, or of the n-th alone.
  bool flip_copied_byte = false;
  std::uint64_t only_copy = 0;  // from 1; 0: each

  // A grant to read is passed on as one to read and write, while cuMemGetAccess goes on to answer READ.
  bool ignore_read_only = false;

  // cuMemRelease answers success and releases nothing.
  bool keep_released_memory = false;

  // Of the calls of cuMemSetAccess for a mapped address only the first has effect, and of its list only the first
  // descriptor; all answer success.
  bool ignore_second_grant = false;

  friend bool operator==(const Lies&, const Lies&) = default;
};

// Reads names of lies separated by commas: flip_copied_byte, or flip_copied_byte:N for the n-th copy alone,
// ignore_read_only, keep_released_memory, ignore_second_grant. Throws InvalidUse, quoting what is none of them.
[[nodiscard]] Lies parse_lies(std::string_view text);

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

  CUresult cuMemRelease(CUmemGenericAllocationHandle handle) override;
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

  [[nodiscard]] bool flips_this_copy(CUresult result, std::size_t bytes);
  [[nodiscard]] bool waited_for(CUstream stream);
  void flip_on_host(void* destination, std::size_t bytes);
  void flip_anywhere(CUdeviceptr destination, std::size_t bytes);
  void flip_in_context(CUcontext context, CUdeviceptr destination, std::size_t bytes);
  void remember_grants(CUdeviceptr pointer, size_t size, const CUmemAccessDesc* descriptors, size_t count);
  void forget(CUdeviceptr pointer, size_t size);

  Lies lies_;
  std::mutex mutex_;
  std::uint64_t copies_ = 0;
  std::vector<HiddenGrant> hidden_;
  std::set<CUdeviceptr> granted_;
};

}  // namespace cuvmm::driver
