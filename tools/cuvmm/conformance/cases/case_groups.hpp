// The groups of cases, each in the file of its name.
#pragma once

#include "conformance/cases/case.hpp"

namespace cuvmm::conformance {

void add_access_cases(Table& table);
void add_alloc_cases(Table& table);
void add_argument_cases(Table& table);
void add_argument_limit_cases(Table& table);
void add_border_cases(Table& table);
void add_capture_cases(Table& table);
void add_capture_structure_cases(Table& table);
void add_closed_copy_cases(Table& table);
void add_context_cases(Table& table);
void add_copy_cases(Table& table);
void add_create_cases(Table& table);
void add_current_pool_cases(Table& table);
void add_device_cases(Table& table);
void add_dma_buf_cases(Table& table);
void add_error_name_cases(Table& table);
void add_event_cases(Table& table);
void add_export_cases(Table& table);
void add_external_wait_cases(Table& table);
void add_fork_cases(Table& table);
void add_granularity_cases(Table& table);
void add_graph_cases(Table& table);
void add_graph_memory_cases(Table& table);
void add_host_alloc_cases(Table& table);
void add_host_cases(Table& table);
void add_host_location_cases(Table& table);
void add_host_register_cases(Table& table);
void add_identity_cases(Table& table);
void add_import_cases(Table& table);
void add_ipc_cases(Table& table);
void add_kernel_cases(Table& table);
void add_limits_cases(Table& table);
void add_map_cases(Table& table);
void add_memory_info_cases(Table& table);
void add_memset_cases(Table& table);
void add_module_cases(Table& table);
void add_peer_cases(Table& table);
void add_pending_cases(Table& table);
void add_pointer_attribute_cases(Table& table);
void add_pointer_cases(Table& table);
void add_pool_border_cases(Table& table);
void add_pool_cases(Table& table);
void add_pool_memory_cases(Table& table);
void add_pool_sharing_cases(Table& table);
void add_precedence_cases(Table& table);
void add_primary_context_cases(Table& table);
void add_proc_address_cases(Table& table);
void add_process_cases(Table& table);
void add_process_ipc_cases(Table& table);
void add_process_pool_cases(Table& table);
void add_properties_cases(Table& table);
void add_release_cases(Table& table);
void add_reserve_cases(Table& table);
void add_retain_cases(Table& table);
void add_rights_cases(Table& table);
void add_state_cases(Table& table);
void add_sticky_cases(Table& table);
void add_stream_cases(Table& table);
void add_stream_value_cases(Table& table);
void add_thread_cases(Table& table);
void add_two_device_cases(Table& table);
void add_unmap_cases(Table& table);

}  // namespace cuvmm::conformance
