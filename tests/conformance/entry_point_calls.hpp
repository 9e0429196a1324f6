// One plausible call of every driver entry point but those of multicast, for cases that ask how a state of the driver
// shows in all of them: not initialised, no context current, context broken.
#pragma once

#include <vector>

#include "conformance/environment.hpp"

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
};

// Makes all of them in the current context.
[[nodiscard]] Objects make_objects(Environment& cuda);

struct EntryPointCall {
  driver::EntryPoint entry_point;
  CUresult (*call)(driver::Interface&, Objects&);
};

// In the order of the entry points: those that the recorded answers tell of.
[[nodiscard]] const std::vector<EntryPointCall>& entry_point_calls();

// All others: what a real driver answers has not been recorded yet.
[[nodiscard]] const std::vector<EntryPointCall>& unrecorded_entry_point_calls();

}  // namespace cuvmm::conformance
