// One plausible call of every driver entry point but those of multicast, for cases that ask how a state of the driver
// shows in all of them: not initialised, no context current, context broken.
#pragma once

#include <vector>

#include "conformance/cases/environment.hpp"

namespace cuvmm::conformance {

// What the calls are made with. Everything is null until make_objects.
struct Objects {
  CUcontext context = nullptr;
  CUdeviceptr allocation = 0;
  CUdeviceptr second_allocation = 0;
  CUdeviceptr reservation = 0;  // two granules, the first mapped and granted
  CUdeviceptr free_reservation = 0;
  CUmemGenericAllocationHandle handle = 0;  // exportable, not mapped
  int descriptor = -1;
  void* host = nullptr;
  void* registered = nullptr;
  CUstream stream = nullptr;
  CUstream capturing = nullptr;
  CUevent event = nullptr;  // recorded and done, as the next
  CUevent second_event = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec graph_exec = nullptr;
  CUmemoryPool pool = nullptr;
  CUdeviceptr pooled = 0;              // allocated from it
  CUuserObject user_object = nullptr;  // twice the caller's, once the graph's
  CUmemoryPool shared_pool = nullptr;  // exported
  int pool_descriptor = -1;
  CUdeviceptr shared_pooled = 0;  // allocated from it, and exported as the next
  CUmemPoolPtrExportData pointer_data{};
};

// Makes all of them in the current context.
[[nodiscard]] Objects make_objects(Environment& cuda);
// The last ones, which need the others; make_objects does.
void make_further_objects(Environment& cuda, Objects& objects);

struct EntryPointCall {
  driver::EntryPoint entry_point;
  CUresult (*call)(driver::Interface&, Objects&);
};

// The calls of the entry points that there were first, of those that came with memory pools, and of those that share
// these: in lists of their own, so that cases which make several calls stay as they were recorded. In the order of the
// entry points.
[[nodiscard]] const std::vector<EntryPointCall>& first_entry_point_calls();
[[nodiscard]] const std::vector<EntryPointCall>& further_entry_point_calls();
[[nodiscard]] const std::vector<EntryPointCall>& pool_sharing_calls();
// All of them.
[[nodiscard]] const std::vector<EntryPointCall>& entry_point_calls();

}  // namespace cuvmm::conformance
