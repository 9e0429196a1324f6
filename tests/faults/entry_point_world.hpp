// An emulated machine on which one call of the driver is made to fail, and what of its state can be told.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "conformance/cases/entry_point_calls.hpp"
#include "conformance/cases/environment.hpp"
#include "emulator/api/emulated_driver.hpp"

namespace cuvmm::test {

using namespace abi;

// A new machine of two devices with one of every object (conformance/cases/entry_point_calls.hpp). Its work advances
// in the calling thread alone, so that allocations can be counted.
class EntryPointWorld {
 public:
  EntryPointWorld();
  EntryPointWorld(const EntryPointWorld&) = delete;
  EntryPointWorld& operator=(const EntryPointWorld&) = delete;
  EntryPointWorld(EntryPointWorld&&) = delete;
  EntryPointWorld& operator=(EntryPointWorld&&) = delete;
  ~EntryPointWorld();

  [[nodiscard]] driver::Interface* operator->() const { return environment.operator->(); }
  [[nodiscard]] emulator::api::EmulatedDriver& emulated() const;

  // What there is, as a text: objects and handles, memory that is free, the current context and its health.
  [[nodiscard]] std::string state() const;

  conformance::Environment environment;
  conformance::Objects objects;

  // What a case has made for itself.
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUgraphExec graph_exec = nullptr;
  CUcontext context = nullptr;
  CUfunction function = nullptr;
  CUmemoryPool pool = nullptr;

 private:
  std::set<int> open_before;
};

// One call to be tried with each of its steps failing.
struct EntryPointCase {
  std::string name;
  std::function<void(EntryPointWorld&)> prepare;
  std::function<CUresult(EntryPointWorld&)> call;
};

// What the table of entry points does not show: calls in which there is more to do, and so more to fail.
[[nodiscard]] std::vector<EntryPointCase> entry_point_variants();

}  // namespace cuvmm::test
