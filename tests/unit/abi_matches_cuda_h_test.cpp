// Compares the declared driver ABI with the toolkit's cuda.h: most of it while this file compiles.
//
// Our header comes first, and everything of it that cuda.h also has as a macro is kept under another name before
// cuda.h is included.
#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "driver/abi.hpp"

namespace ours {
using namespace cuvmm::abi;

constexpr std::array host_flags = {CU_MEMHOSTALLOC_PORTABLE,      CU_MEMHOSTALLOC_DEVICEMAP,
                                   CU_MEMHOSTALLOC_WRITECOMBINED, CU_MEMHOSTREGISTER_PORTABLE,
                                   CU_MEMHOSTREGISTER_DEVICEMAP,  CU_MEMHOSTREGISTER_IOMEMORY,
                                   CU_MEMHOSTREGISTER_READ_ONLY};
constexpr unsigned tile_pool = CU_MEM_CREATE_USAGE_TILE_POOL;
constexpr unsigned hardware_decompression = CU_MEM_CREATE_USAGE_HW_DECOMPRESS;

#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments) using type_of_##name = CUresult(*) parameters;
#include "driver/entry_points.def"
}  // namespace ours

#include <cuda.h>
#include <cudaTypedefs.h>
#include <gtest/gtest.h>

namespace {

// Enumerators of one value in both.
#define SAME(name) static_assert(static_cast<int>(cuvmm::abi::name) == static_cast<int>(::name))

#define CUVMM_RESULT(name, value) SAME(CUDA_##name);
#include "driver/abi_results.def"

#define CUVMM_DEVICE_ATTRIBUTE(name, value) SAME(CU_DEVICE_ATTRIBUTE_##name);
#include "driver/abi_device_attributes.def"

SAME(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK);
SAME(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED);
SAME(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
SAME(CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED);
SAME(CU_CTX_SCHED_AUTO);
SAME(CU_CTX_SCHED_SPIN);
SAME(CU_CTX_SCHED_YIELD);
SAME(CU_CTX_SCHED_BLOCKING_SYNC);
SAME(CU_CTX_SCHED_MASK);
SAME(CU_CTX_MAP_HOST);
SAME(CU_CTX_LMEM_RESIZE_TO_MAX);
SAME(CU_CTX_COREDUMP_ENABLE);
SAME(CU_CTX_USER_COREDUMP_ENABLE);
SAME(CU_CTX_SYNC_MEMOPS);
SAME(CU_CTX_FLAGS_MASK);
SAME(CU_MEMORYTYPE_HOST);
SAME(CU_MEMORYTYPE_DEVICE);
SAME(CU_MEMORYTYPE_ARRAY);
SAME(CU_MEMORYTYPE_UNIFIED);
SAME(CU_COMPUTEMODE_DEFAULT);
SAME(CU_COMPUTEMODE_PROHIBITED);
SAME(CU_COMPUTEMODE_EXCLUSIVE_PROCESS);
SAME(CU_POINTER_ATTRIBUTE_CONTEXT);
SAME(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
SAME(CU_POINTER_ATTRIBUTE_HOST_POINTER);
SAME(CU_POINTER_ATTRIBUTE_P2P_TOKENS);
SAME(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
SAME(CU_POINTER_ATTRIBUTE_BUFFER_ID);
SAME(CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
SAME(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME(CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME(CU_POINTER_ATTRIBUTE_MAPPED);
SAME(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
SAME(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE);
SAME(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS);
SAME(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
SAME(CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
SAME(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
SAME(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID);
SAME(CU_MEM_LOCATION_TYPE_INVALID);
SAME(CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CU_MEM_LOCATION_TYPE_HOST);
SAME(CU_MEM_LOCATION_TYPE_HOST_NUMA);
SAME(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
SAME(CU_MEM_ALLOCATION_TYPE_INVALID);
SAME(CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(CU_MEM_ALLOCATION_TYPE_MANAGED);
SAME(CU_MEM_HANDLE_TYPE_NONE);
SAME(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(CU_MEM_HANDLE_TYPE_WIN32);
SAME(CU_MEM_HANDLE_TYPE_WIN32_KMT);
SAME(CU_MEM_HANDLE_TYPE_FABRIC);
SAME(CU_MEM_ACCESS_FLAGS_PROT_NONE);
SAME(CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
SAME(CU_MEM_ALLOCATION_COMP_NONE);
SAME(CU_MEM_ALLOCATION_COMP_GENERIC);
SAME(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
SAME(CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE);
SAME(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES);
SAME(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC);
SAME(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES);
SAME(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
SAME(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
SAME(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
SAME(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
SAME(CU_MEMPOOL_ATTR_USED_MEM_HIGH);
SAME(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
SAME(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH);
SAME(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
SAME(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
SAME(CU_MEM_ATTACH_GLOBAL);
SAME(CU_MEM_ATTACH_HOST);
SAME(CU_MEM_ATTACH_SINGLE);
SAME(CU_MULTICAST_GRANULARITY_MINIMUM);
SAME(CU_MULTICAST_GRANULARITY_RECOMMENDED);
SAME(CU_STREAM_DEFAULT);
SAME(CU_STREAM_NON_BLOCKING);
SAME(CU_EVENT_DEFAULT);
SAME(CU_EVENT_BLOCKING_SYNC);
SAME(CU_EVENT_DISABLE_TIMING);
SAME(CU_EVENT_INTERPROCESS);
SAME(CU_EVENT_RECORD_DEFAULT);
SAME(CU_EVENT_RECORD_EXTERNAL);
SAME(CU_EVENT_WAIT_DEFAULT);
SAME(CU_EVENT_WAIT_EXTERNAL);
SAME(CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(CU_STREAM_CAPTURE_STATUS_NONE);
SAME(CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SAME(CU_STREAM_WAIT_VALUE_GEQ);
SAME(CU_STREAM_WAIT_VALUE_EQ);
SAME(CU_STREAM_WAIT_VALUE_AND);
SAME(CU_STREAM_WAIT_VALUE_NOR);
SAME(CU_STREAM_WAIT_VALUE_FLUSH);
SAME(CU_STREAM_WRITE_VALUE_DEFAULT);
SAME(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
SAME(CU_GET_PROC_ADDRESS_SUCCESS);
SAME(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
SAME(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);

static_assert(ours::host_flags == std::array<unsigned, 7>{CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP,
                                                          CU_MEMHOSTALLOC_WRITECOMBINED, CU_MEMHOSTREGISTER_PORTABLE,
                                                          CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_IOMEMORY,
                                                          CU_MEMHOSTREGISTER_READ_ONLY});
static_assert(ours::tile_pool == CU_MEM_CREATE_USAGE_TILE_POOL);
static_assert(ours::hardware_decompression == CU_MEM_CREATE_USAGE_HW_DECOMPRESS);

// Types of one size and alignment.
#define SAME_TYPE(name)                                      \
  static_assert(sizeof(cuvmm::abi::name) == sizeof(::name)); \
  static_assert(alignof(cuvmm::abi::name) == alignof(::name))

SAME_TYPE(CUresult);
SAME_TYPE(CUdevice_attribute);
SAME_TYPE(CUdevice_P2PAttribute);
SAME_TYPE(CUpointer_attribute);
SAME_TYPE(CUmemLocationType);
SAME_TYPE(CUmemAllocationType);
SAME_TYPE(CUmemAllocationHandleType);
SAME_TYPE(CUmemAccess_flags);
SAME_TYPE(CUmemAllocationGranularity_flags);
SAME_TYPE(CUmemRangeHandleType);
SAME_TYPE(CUmulticastGranularity_flags);
SAME_TYPE(CUstreamCaptureMode);
SAME_TYPE(CUstreamCaptureStatus);
SAME_TYPE(CUmemLocation);
SAME_TYPE(CUmemAllocationProp);
SAME_TYPE(CUmemAccessDesc);
SAME_TYPE(CUmemFabricHandle);
SAME_TYPE(CUipcMemHandle);
SAME_TYPE(CUuuid);
SAME_TYPE(CUmulticastObjectProp);
SAME_TYPE(CUmemPoolProps);
SAME_TYPE(CUmemPoolPtrExportData);
SAME_TYPE(CUmemPool_attribute);
SAME_TYPE(CUgraphMem_attribute);

// These pass between code that includes either header without a conversion.
static_assert(std::is_same_v<cuvmm::abi::CUdevice, ::CUdevice>);
static_assert(std::is_same_v<cuvmm::abi::CUdeviceptr, ::CUdeviceptr>);
static_assert(std::is_same_v<cuvmm::abi::CUcontext, ::CUcontext>);
static_assert(std::is_same_v<cuvmm::abi::CUstream, ::CUstream>);
static_assert(std::is_same_v<cuvmm::abi::CUevent, ::CUevent>);
static_assert(std::is_same_v<cuvmm::abi::CUmodule, ::CUmodule>);
static_assert(std::is_same_v<cuvmm::abi::CUfunction, ::CUfunction>);
static_assert(std::is_same_v<cuvmm::abi::CUgraph, ::CUgraph>);
static_assert(std::is_same_v<cuvmm::abi::CUgraphNode, ::CUgraphNode>);
static_assert(std::is_same_v<cuvmm::abi::CUgraphExec, ::CUgraphExec>);
static_assert(std::is_same_v<cuvmm::abi::CUuserObject, ::CUuserObject>);
static_assert(std::is_same_v<cuvmm::abi::CUmemoryPool, ::CUmemoryPool>);
static_assert(std::is_same_v<cuvmm::abi::CUmemGenericAllocationHandle, ::CUmemGenericAllocationHandle>);
static_assert(std::is_same_v<cuvmm::abi::CUhostFn, ::CUhostFn>);

// Members at one offset, of one size.
#define SAME_MEMBER(type, member)                                                \
  static_assert(offsetof(cuvmm::abi::type, member) == offsetof(::type, member)); \
  static_assert(sizeof(cuvmm::abi::type::member) == sizeof(::type::member))

SAME_MEMBER(CUmemLocation, type);
SAME_MEMBER(CUmemLocation, id);
SAME_MEMBER(CUmemAllocationProp, type);
SAME_MEMBER(CUmemAllocationProp, requestedHandleTypes);
SAME_MEMBER(CUmemAllocationProp, location);
SAME_MEMBER(CUmemAllocationProp, win32HandleMetaData);
SAME_MEMBER(CUmemAllocationProp, allocFlags);
static_assert(offsetof(cuvmm::abi::CUmemAllocationProp, allocFlags.compressionType) ==
              offsetof(::CUmemAllocationProp, allocFlags.compressionType));
static_assert(offsetof(cuvmm::abi::CUmemAllocationProp, allocFlags.gpuDirectRDMACapable) ==
              offsetof(::CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
static_assert(offsetof(cuvmm::abi::CUmemAllocationProp, allocFlags.usage) ==
              offsetof(::CUmemAllocationProp, allocFlags.usage));
static_assert(offsetof(cuvmm::abi::CUmemAllocationProp, allocFlags.reserved) ==
              offsetof(::CUmemAllocationProp, allocFlags.reserved));
SAME_MEMBER(CUmemAccessDesc, location);
SAME_MEMBER(CUmemAccessDesc, flags);
SAME_MEMBER(CUmemFabricHandle, data);
SAME_MEMBER(CUipcMemHandle, reserved);
SAME_MEMBER(CUuuid, bytes);
SAME_MEMBER(CUmulticastObjectProp, numDevices);
SAME_MEMBER(CUmulticastObjectProp, size);
SAME_MEMBER(CUmulticastObjectProp, handleTypes);
SAME_MEMBER(CUmulticastObjectProp, flags);

SAME_MEMBER(CUmemPoolProps, allocType);
SAME_MEMBER(CUmemPoolProps, handleTypes);
SAME_MEMBER(CUmemPoolProps, location);
SAME_MEMBER(CUmemPoolProps, win32SecurityAttributes);
SAME_MEMBER(CUmemPoolProps, maxSize);
SAME_MEMBER(CUmemPoolProps, usage);
SAME_MEMBER(CUmemPoolProps, reserved);
SAME_MEMBER(CUmemPoolPtrExportData, reserved);

// Functions: as many parameters, each of one size and kind, in the form of the listed version. cudaTypedefs.h has a
// type for each function and version, so a listed version that does not exist does not compile.
template <class A, class B>
constexpr bool same_parameter =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>&& std::is_class_v<A> ==
                                  std::is_class_v<B>&& std::is_const_v<std::remove_pointer_t<A>> ==
                                  std::is_const_v<std::remove_pointer_t<B>>;

template <class Ours, class Theirs>
constexpr bool same_function = false;
template <class R, class... A, class S, class... B>
constexpr bool same_function<R (*)(A...), S (*)(B...)> = [] {
  if constexpr (sizeof...(A) != sizeof...(B))
    return false;
  else
    return sizeof(R) == sizeof(S) && (same_parameter<A, B> && ...);
}();

// The types' names have no _v2. A toolkit that is older than a form has nothing to compare it with.
#if CUDA_VERSION >= 13010
using PFN_cuMulticastBindMem_v2_v13010 = PFN_cuMulticastBindMem_v13010;
using PFN_cuMulticastBindAddr_v2_v13010 = PFN_cuMulticastBindAddr_v13010;
#else
using PFN_cuMulticastBindMem_v2_v13010 = ours::type_of_cuMulticastBindMem_v2;
using PFN_cuMulticastBindAddr_v2_v13010 = ours::type_of_cuMulticastBindAddr_v2;
#endif

#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments) \
  static_assert(same_function<ours::type_of_##name, PFN_##name##_v##version>);
#include "driver/entry_points.def"

TEST(AbiMatchesCudaH, SpecialStreams) {
  EXPECT_EQ(cuvmm::abi::legacy_stream(), CU_STREAM_LEGACY);
  EXPECT_EQ(cuvmm::abi::per_thread_stream(), CU_STREAM_PER_THREAD);
}

}  // namespace
