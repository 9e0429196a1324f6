#include "driver/lying_driver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "cuvmm/error.hpp"

namespace cuvmm::driver {

namespace {

constexpr unsigned char flipped_bit = 0x10;

bool same_place(const CUmemLocation& a, const CUmemLocation& b) {
  return a.type == b.type && a.id == b.id;
}

[[noreturn]] void refuse_lie(std::string_view item) {
  Failure failure;
  failure.kind = ErrorKind::invalid_use;
  failure.call = "parse_lies";
  failure.arguments = fmt::format("\"{}\"", item);
  failure.rule = "There is no such lie";
  failure.way_out =
      "Write flip_copied_byte, flip_copied_byte:N with N from 1, ignore_read_only, keep_released_memory or "
      "ignore_second_grant, separated by commas";
  raise(failure);
}

void parse_flip(std::string_view item, std::string_view number, Lies& lies) {
  lies.flip_copied_byte = true;
  if (number.empty()) return;
  number.remove_prefix(1);
  const char* const end = number.data() + number.size();
  const auto [stopped, error] = std::from_chars(number.data(), end, lies.only_copy);
  if (error != std::errc() || stopped != end || lies.only_copy == 0) refuse_lie(item);
}

void parse_lie(std::string_view item, Lies& lies) {
  constexpr std::string_view flip = "flip_copied_byte";
  if (item == flip || item.starts_with("flip_copied_byte:"))
    parse_flip(item, item.substr(flip.size()), lies);
  else if (item == "ignore_read_only")
    lies.ignore_read_only = true;
  else if (item == "keep_released_memory")
    lies.keep_released_memory = true;
  else if (item == "ignore_second_grant")
    lies.ignore_second_grant = true;
  else
    refuse_lie(item);
}

}  // namespace

Lies parse_lies(std::string_view text) {
  Lies lies;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    parse_lie(text.substr(0, comma), lies);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) refuse_lie(text);
  }
  return lies;
}

LyingDriver::LyingDriver(std::shared_ptr<Interface> next, const Lies& lies) : Decorator(std::move(next)), lies_(lies) {}

std::string LyingDriver::description() const {
  return next().description() + ", lying on purpose";
}

// Copies.

bool LyingDriver::flips_this_copy(CUresult result, std::size_t bytes) {
  if (!lies_.flip_copied_byte || result != CUDA_SUCCESS || bytes == 0) return false;
  const std::lock_guard lock(mutex_);
  ++copies_;
  return lies_.only_copy == 0 || lies_.only_copy == copies_;
}

bool LyingDriver::waited_for(CUstream stream) {
  auto status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (next().cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE)
    return false;
  return next().cuStreamSynchronize(stream) == CUDA_SUCCESS;
}

void LyingDriver::flip_on_host(void* destination, std::size_t bytes) {
  static_cast<unsigned char*>(destination)[bytes / 2] ^= flipped_bit;
}

void LyingDriver::flip_anywhere(CUdeviceptr destination, std::size_t bytes) {
  unsigned char byte = 0;
  const CUdeviceptr address = destination + bytes / 2;
  const auto here = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(&byte));
  if (next().cuMemcpy(here, address, 1) != CUDA_SUCCESS) return;
  byte ^= flipped_bit;
  static_cast<void>(next().cuMemcpy(address, here, 1));
}

void LyingDriver::flip_in_context(CUcontext context, CUdeviceptr destination, std::size_t bytes) {
  if (next().cuCtxPushCurrent(context) != CUDA_SUCCESS) return;
  flip_anywhere(destination, bytes);
  CUcontext popped = nullptr;
  static_cast<void>(next().cuCtxPopCurrent(&popped));
}

CUresult LyingDriver::cuMemcpy(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  const CUresult result = next().cuMemcpy(destination, source, bytes);
  if (flips_this_copy(result, bytes)) flip_anywhere(destination, bytes);
  return result;
}

CUresult LyingDriver::cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  const CUresult result = next().cuMemcpyAsync(destination, source, bytes, stream);
  if (flips_this_copy(result, bytes) && waited_for(stream)) flip_anywhere(destination, bytes);
  return result;
}

CUresult LyingDriver::cuMemcpyDtoH(void* destination, CUdeviceptr source, size_t bytes) {
  const CUresult result = next().cuMemcpyDtoH(destination, source, bytes);
  if (flips_this_copy(result, bytes)) flip_on_host(destination, bytes);
  return result;
}

CUresult LyingDriver::cuMemcpyDtoHAsync(void* destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  const CUresult result = next().cuMemcpyDtoHAsync(destination, source, bytes, stream);
  if (flips_this_copy(result, bytes) && waited_for(stream)) flip_on_host(destination, bytes);
  return result;
}

CUresult LyingDriver::cuMemcpyDtoD(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  const CUresult result = next().cuMemcpyDtoD(destination, source, bytes);
  if (flips_this_copy(result, bytes)) flip_anywhere(destination, bytes);
  return result;
}

CUresult LyingDriver::cuMemcpyDtoDAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  const CUresult result = next().cuMemcpyDtoDAsync(destination, source, bytes, stream);
  if (flips_this_copy(result, bytes) && waited_for(stream)) flip_anywhere(destination, bytes);
  return result;
}

CUresult LyingDriver::cuMemcpyPeer(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                                   CUcontext source_context, size_t bytes) {
  const CUresult result = next().cuMemcpyPeer(destination, destination_context, source, source_context, bytes);
  if (flips_this_copy(result, bytes)) flip_in_context(destination_context, destination, bytes);
  return result;
}

CUresult LyingDriver::cuMemcpyPeerAsync(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                                        CUcontext source_context, size_t bytes, CUstream stream) {
  const CUresult result =
      next().cuMemcpyPeerAsync(destination, destination_context, source, source_context, bytes, stream);
  if (flips_this_copy(result, bytes) && waited_for(stream)) flip_in_context(destination_context, destination, bytes);
  return result;
}

// Memory and grants.

CUresult LyingDriver::cuMemRelease(CUmemGenericAllocationHandle handle) {
  return lies_.keep_released_memory ? CUDA_SUCCESS : next().cuMemRelease(handle);
}

CUresult LyingDriver::cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc* descriptors,
                                     size_t count) {
  if (descriptors == nullptr) return next().cuMemSetAccess(pointer, size, descriptors, count);
  std::vector<CUmemAccessDesc> passed_on(descriptors, descriptors + count);
  if (lies_.ignore_second_grant) {
    const std::lock_guard lock(mutex_);
    if (granted_.contains(pointer)) return CUDA_SUCCESS;
    if (passed_on.size() > 1) passed_on.erase(passed_on.begin() + 1, passed_on.end());
  }
  if (lies_.ignore_read_only)
    for (CUmemAccessDesc& each : passed_on)
      if (each.flags == CU_MEM_ACCESS_FLAGS_PROT_READ) each.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const CUresult result = next().cuMemSetAccess(pointer, size, passed_on.data(), passed_on.size());
  if (result == CUDA_SUCCESS) remember_grants(pointer, size, descriptors, count);
  return result;
}

void LyingDriver::remember_grants(CUdeviceptr pointer, size_t size, const CUmemAccessDesc* descriptors, size_t count) {
  const std::lock_guard lock(mutex_);
  granted_.insert(pointer);
  if (!lies_.ignore_read_only) return;
  for (size_t index = 0; index < count; ++index) {
    const CUmemAccessDesc& grant = descriptors[index];
    std::erase_if(hidden_, [&](const HiddenGrant& hidden) {
      return same_place(hidden.location, grant.location) && hidden.begin >= pointer && hidden.end <= pointer + size;
    });
    if (grant.flags == CU_MEM_ACCESS_FLAGS_PROT_READ) hidden_.push_back({pointer, pointer + size, grant.location});
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
}

}  // namespace cuvmm::driver
