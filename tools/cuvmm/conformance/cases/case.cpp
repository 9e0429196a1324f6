#include "conformance/cases/case.hpp"

#include <algorithm>
#include <stdexcept>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

void Table::add(std::string id, CaseFunction function, Needs needs) {
  if (find(id) != nullptr) throw std::logic_error("two conformance cases are called " + id);
  // Recordings hold a case a line, with a tab behind its id; and people name cases.
  if (id.find_first_of(" \t\r\n") != std::string::npos)
    throw std::logic_error("the id of a conformance case has blanks: '" + id + "'");
  cases_.push_back({std::move(id), std::move(function), needs});
}

const Case* Table::find(const std::string& id) const noexcept {
  const auto found = std::find_if(cases_.begin(), cases_.end(), [&](const Case& each) { return each.id == id; });
  return found == cases_.end() ? nullptr : &*found;
}

Table all_cases() {
  using AddGroup = void (*)(Table&);
  constexpr AddGroup groups[] = {
      add_error_name_cases,
      add_device_cases,
      add_context_cases,
      add_primary_context_cases,
      add_memory_info_cases,
      add_alloc_cases,
      add_host_alloc_cases,
      add_host_register_cases,
      add_create_cases,
      add_granularity_cases,
      add_reserve_cases,
      add_map_cases,
      add_access_cases,
      add_unmap_cases,
      add_release_cases,
      add_retain_cases,
      add_properties_cases,
      add_export_cases,
      add_import_cases,
      add_dma_buf_cases,
      add_ipc_cases,
      add_copy_cases,
      add_memset_cases,
      add_pointer_cases,
      add_pointer_attribute_cases,
      add_host_cases,
      add_stream_cases,
      add_stream_value_cases,
      add_event_cases,
      add_capture_cases,
      add_capture_structure_cases,
      add_graph_cases,
      add_module_cases,
      add_kernel_cases,
      add_sticky_cases,
      add_state_cases,
      add_limits_cases,
      add_process_cases,
      add_process_ipc_cases,
      add_peer_cases,
      add_pending_cases,
      add_external_wait_cases,
      add_host_location_cases,
      add_rights_cases,
      add_border_cases,
      add_argument_cases,
      add_fork_cases,
      add_proc_address_cases,
      add_pool_cases,
      add_pool_memory_cases,
      add_graph_memory_cases,
      add_identity_cases,
      add_pool_border_cases,
      add_pool_sharing_cases,
      add_process_pool_cases,
      add_two_device_cases,
      add_current_pool_cases,
      add_argument_limit_cases,
      add_precedence_cases,
      add_closed_copy_cases,
      add_thread_cases,
  };
  Table table;
  for (const AddGroup add : groups) add(table);
  return table;
}

}  // namespace cuvmm::conformance
