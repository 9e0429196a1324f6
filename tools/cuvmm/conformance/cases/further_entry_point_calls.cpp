// The calls of entry points that came with memory pools.
#include "conformance/cases/entry_point_call_table.hpp"
#include "conformance/cases/entry_point_calls.hpp"

namespace cuvmm::conformance {

namespace {

using driver::EntryPoint;
using driver::Interface;

unsigned long long zero = 0;

const CUmemPoolProps* pool_properties() {
  static const CUmemPoolProps device_pool = [] {
    CUmemPoolProps made{};
    made.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    made.location = location(0);
    return made;
  }();
  return &device_pool;
}

CUmemLocation* pool_location() {
  static CUmemLocation place = location(0);
  return &place;
}

std::vector<EntryPointCall> device_and_context_calls() {
  return {
      CUVMM_CALL(cuDeviceGetByPCIBusId, out<CUdevice>(), "0000:00:00.0"),
      CUVMM_CALL(cuCtxGetId, o.context, out<unsigned long long>()),
      CUVMM_CALL(cuCtxGetApiVersion, o.context, out<unsigned>()),
      CUVMM_CALL(cuCtxGetStreamPriorityRange, out<int>(), out<int>()),
      CUVMM_CALL(cuMemAllocManaged, out<CUdeviceptr>(), 4096, CU_MEM_ATTACH_GLOBAL),
  };
}

std::vector<EntryPointCall> pool_calls() {
  return {
      CUVMM_CALL(cuDeviceGetDefaultMemPool, out<CUmemoryPool>(), 0),
      CUVMM_CALL(cuDeviceGetMemPool, out<CUmemoryPool>(), 0),
      CUVMM_CALL(cuDeviceSetMemPool, 0, o.pool),
      CUVMM_CALL(cuMemGetDefaultMemPool, out<CUmemoryPool>(), pool_location(), CU_MEM_ALLOCATION_TYPE_PINNED),
      CUVMM_CALL(cuMemGetMemPool, out<CUmemoryPool>(), pool_location(), CU_MEM_ALLOCATION_TYPE_PINNED),
      CUVMM_CALL(cuMemSetMemPool, pool_location(), CU_MEM_ALLOCATION_TYPE_PINNED, o.pool),
      CUVMM_CALL(cuMemPoolCreate, out<CUmemoryPool>(), pool_properties()),
      CUVMM_CALL(cuMemPoolDestroy, o.pool),
      CUVMM_CALL(cuMemPoolTrimTo, o.pool, 0),
      CUVMM_CALL(cuMemPoolSetAttribute, o.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &call_word),
      CUVMM_CALL(cuMemPoolGetAttribute, o.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &call_word),
      CUVMM_CALL(cuMemPoolSetAccess, o.pool, read_write(), 1),
      CUVMM_CALL(cuMemPoolGetAccess, out<CUmemAccess_flags>(), o.pool, pool_location()),
      CUVMM_CALL(cuMemAllocAsync, out<CUdeviceptr>(), 4096, o.stream),
      CUVMM_CALL(cuMemAllocFromPoolAsync, out<CUdeviceptr>(), 4096, o.pool, o.stream),
      CUVMM_CALL(cuMemFreeAsync, o.pooled, o.stream),
      CUVMM_CALL(cuDeviceGetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &call_word),
      CUVMM_CALL(cuDeviceSetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero),
      CUVMM_CALL(cuDeviceGraphMemTrim, 0),
  };
}

std::vector<EntryPointCall> stream_and_graph_calls() {
  return {
      CUVMM_CALL(cuStreamGetPriority, o.stream, out<int>()),
      CUVMM_CALL(cuStreamGetId, o.stream, out<unsigned long long>()),
      CUVMM_CALL(cuStreamUpdateCaptureDependencies, o.stream, nullptr, 0, 1),
      CUVMM_CALL(cuGraphUpload, o.graph_exec, o.stream),
      CUVMM_CALL(cuUserObjectCreate, out<CUuserObject>(), &call_word, nothing, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
      CUVMM_CALL(cuUserObjectRetain, o.user_object, 1),
      CUVMM_CALL(cuUserObjectRelease, o.user_object, 1),
      CUVMM_CALL(cuGraphRetainUserObject, o.graph, o.user_object, 1, 0),
      CUVMM_CALL(cuGraphReleaseUserObject, o.graph, o.user_object, 1),
  };
}

std::vector<EntryPointCall> calls_that_share_pools() {
  return {
      CUVMM_CALL(cuMemPoolExportToShareableHandle, out<int>(), o.shared_pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                 0),
      CUVMM_CALL(cuMemPoolImportFromShareableHandle, out<CUmemoryPool>(), as_os_handle(o.pool_descriptor),
                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      CUVMM_CALL(cuMemPoolExportPointer, out<CUmemPoolPtrExportData>(), o.shared_pooled),
      CUVMM_CALL(cuMemPoolImportPointer, out<CUdeviceptr>(), o.shared_pool, &o.pointer_data),
  };
}

void make_shared_pool(Environment& cuda, Objects& objects) {
  CUmemPoolProps properties = *pool_properties();
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  cuda.expect("create shared pool", cuda->cuMemPoolCreate(&objects.shared_pool, &properties));
  cuda.expect("export pool", cuda->cuMemPoolExportToShareableHandle(&objects.pool_descriptor, objects.shared_pool,
                                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  cuda.expect("allocate",
              cuda->cuMemAllocFromPoolAsync(&objects.shared_pooled, 4096, objects.shared_pool, objects.stream));
  cuda.expect("synchronize", cuda->cuStreamSynchronize(objects.stream));
  cuda.expect("export pointer", cuda->cuMemPoolExportPointer(&objects.pointer_data, objects.shared_pooled));
}

}  // namespace

void make_further_objects(Environment& cuda, Objects& objects) {
  cuda.expect("create pool", cuda->cuMemPoolCreate(&objects.pool, pool_properties()));
  cuda.expect("allocate", cuda->cuMemAllocFromPoolAsync(&objects.pooled, 4096, objects.pool, objects.stream));
  cuda.expect("synchronize", cuda->cuStreamSynchronize(objects.stream));
  cuda.expect("user object", cuda->cuUserObjectCreate(&objects.user_object, &call_word, nothing, 2,
                                                      CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  cuda.expect("retain", cuda->cuGraphRetainUserObject(objects.graph, objects.user_object, 1, 0));
  make_shared_pool(cuda, objects);
}

const std::vector<EntryPointCall>& pool_sharing_calls() {
  static const std::vector<EntryPointCall> calls = calls_that_share_pools();
  return calls;
}

const std::vector<EntryPointCall>& further_entry_point_calls() {
  static const std::vector<EntryPointCall> calls = [] {
    std::vector<EntryPointCall> all;
    for (const auto& group : {device_and_context_calls(), pool_calls(), stream_and_graph_calls()})
      all.insert(all.end(), group.begin(), group.end());
    return all;
  }();
  return calls;
}

}  // namespace cuvmm::conformance
