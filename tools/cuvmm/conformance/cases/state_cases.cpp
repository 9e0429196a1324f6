// Every entry point before cuInit, and with no context current.
#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/entry_point_calls.hpp"

namespace cuvmm::conformance {

void add_state_cases(Table& table) {
  for (const EntryPointCall& each : entry_point_calls()) {
    const std::string name{driver::name(each.entry_point)};
    table.add(
        "not_initialized." + name,
        [call = each.call](Environment& cuda) {
          Objects none;
          return call(cuda.driver(), none);
        },
        needs_loaded);
    table.add("no_context." + name, [call = each.call](Environment& cuda) {
      Objects objects = make_objects(cuda);
      cuda.make_current(nullptr);
      return call(cuda.driver(), objects);
    });
  }
}

}  // namespace cuvmm::conformance
