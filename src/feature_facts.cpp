#include "feature_facts.hpp"

namespace cuvmm {

using namespace abi;

namespace {

constexpr auto no_attribute = static_cast<CUdevice_attribute>(0);

constexpr std::array<FeatureFacts, feature_count> table{{
    {Feature::virtual_memory_management, "virtual_memory_management", "virtual memory management",
     CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 10020, "The device has no virtual memory management",
     "Use another device; in a virtual machine, one that is passed through whole",
     "Look at what the driver logged (dmesg, lines with NVRM), and try again with nothing else on the device"},
    {Feature::posix_file_descriptor_handles, "posix_file_descriptor_handles", "POSIX file descriptor handles",
     CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 10020,
     "The device cannot export memory as file descriptors", "Use fabric handles where there are some",
     "Raise the limit of open files (ulimit -n) if that was reached; else use fabric handles where there are some"},
    {Feature::fabric_handles, "fabric_handles", "fabric handles", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
     12030, "The device cannot export memory as fabric handles",
     "Use POSIX file descriptor handles within a node; fabric handles need GPUs whose NVLink fabric has IMEX",
     "Use POSIX file descriptor handles within this node, and have the IMEX service (nvidia-imex) looked at"},
    {Feature::win32_handles, "win32_handles", "Win32 handles", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED,
     10020, "These handles exist on Windows only", "Use POSIX file descriptor handles",
     "Use POSIX file descriptor handles"},
    {Feature::win32_kmt_handles, "win32_kmt_handles", "Win32 KMT handles",
     CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED, 10020, "These handles exist on Windows only",
     "Use POSIX file descriptor handles", "Use POSIX file descriptor handles"},
    {Feature::multicast, "multicast", "multicast", CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 12010,
     "The device has no multicast, which needs GPUs of one NVSwitch fabric",
     "Use algorithms without multicast; where the GPUs are joined by NVSwitches, have the service "
     "nvidia-fabricmanager looked at",
     "Use algorithms without multicast"},
    {Feature::compression, "compression", "compression", CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED, 11000,
     "The device has no compressible memory", "Create memory without it: the content is the same, only slower",
     "Create memory without it: the content is the same, only slower"},
    {Feature::gpu_direct_rdma, "gpu_direct_rdma", "GPUDirect RDMA with virtual memory",
     CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 11000,
     "Network cards cannot reach virtual memory of the device",
     "Stage transfers through host memory or cuMemAlloc memory",
     "Create memory without the RDMA flag; have the kernel module nvidia_peermem, and in a virtual machine the "
     "passing through of GPU and network card, looked at"},
    {Feature::dma_buf, "dma_buf", "dma-buf export", CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 11070,
     "Device memory cannot be exported as dma-bufs",
     "Install the open variant of the NVIDIA kernel modules on Linux 5.12 or later, or register memory through "
     "nvidia_peermem",
     "Install the open variant of the NVIDIA kernel modules on Linux 5.12 or later, or register memory through "
     "nvidia_peermem"},
    {Feature::host_memory, "host_memory", "host memory", CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
     13000, "Physical memory cannot be created on the host", "Use page-locked memory (cuMemHostAlloc)",
     "Use page-locked memory (cuMemHostAlloc), and have the limit of locked memory (ulimit -l) looked at"},
    {Feature::host_numa_memory, "host_numa_memory", "host NUMA memory",
     CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 12090,
     "Physical memory cannot be created on a NUMA node of the host", "Use page-locked memory (cuMemHostAlloc)",
     "Name a NUMA node that has memory (the file /sys/devices/system/node/has_memory lists them), or use host memory "
     "without a node"},
    {Feature::host_numa_multinode_ipc, "host_numa_multinode_ipc", "host NUMA memory shared between nodes",
     CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED, 12090,
     "Host NUMA memory has no fabric handles here; that needs extended GPU memory (EGM), as on Grace",
     "Share host memory within a node, by POSIX file descriptor handles",
     "Share host memory within a node, by POSIX file descriptor handles, and have the IMEX service looked at"},
    {Feature::read_only_access, "read_only_access", "read-only access", no_attribute, 0, "", "",
     "Keep memory that must not be written to out of reach of what could write to it"},
    {Feature::memory_pools, "memory_pools", "stream-ordered allocation", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
     11020, "The device has no stream-ordered allocation (cuMemAllocAsync)", "Allocate outside of streams", ""},
    {Feature::host_memory_pools, "host_memory_pools", "stream-ordered allocation of host memory",
     CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 13000, "Memory pools cannot lie on the host",
     "Use page-locked memory (cuMemHostAlloc)", ""},
    {Feature::host_numa_memory_pools, "host_numa_memory_pools", "stream-ordered allocation of host NUMA memory",
     CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 12090, "Memory pools cannot lie on a NUMA node of the host",
     "Use page-locked memory (cuMemHostAlloc)", ""},
    {Feature::stream_memory_operations_64_bit, "stream_memory_operations_64_bit", "64-bit stream memory operations",
     CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 11070, "Streams can write and await 32-bit values only",
     "Use 32-bit counters", ""},
    {Feature::stream_wait_value_nor, "stream_wait_value_nor", "stream waits by NOR",
     CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 11070, "Streams cannot wait by the comparison NOR",
     "Wait by another comparison", ""},
}};

constexpr bool in_order() {
  for (std::size_t index = 0; index < table.size(); ++index)
    if (static_cast<std::size_t>(table[index].feature) != index) return false;
  return true;
}
static_assert(in_order());

}  // namespace

const FeatureFacts& facts_of(Feature feature) noexcept {
  return table[static_cast<std::size_t>(feature)];
}

}  // namespace cuvmm
