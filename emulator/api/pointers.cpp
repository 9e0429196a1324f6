// What is known of a pointer.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {
namespace {

template <class Value>
Answer give(void* data, Value value) {
  std::memcpy(data, &value, sizeof value);  // NOLINT(bugprone-sizeof-expression): of pointers, too
  return {};
}

// CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, the newest that the driver of the profile knows.
constexpr int hardware_decompression = 21;

bool exists(CUpointer_attribute attribute) {
  return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT && static_cast<int>(attribute) <= hardware_decompression;
}

Answer unknown_attribute(CUpointer_attribute attribute) {
  return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
          fmt::format("pointer attribute {} does not exist or cannot be asked for here", static_cast<int>(attribute))};
}

// The piece of its pool's memory in which an address of an allocation lies. Memory of graphs has none until a launch.
AddressRange mapping_of(const model::PoolAllocation& allocation, CUdeviceptr pointer) {
  if (!allocation.graph) {
    const model::PoolChunk* const chunk = allocation.pool->chunk_at(pointer);
    return chunk == nullptr ? AddressRange{} : AddressRange{chunk->address, chunk->bytes};
  }
  if (allocation.extent.bytes == 0) return {};
  const std::uint64_t piece = (pointer - allocation.address) / model::pool_chunk_bytes * model::pool_chunk_bytes;
  return {allocation.address + piece, model::pool_chunk_bytes};
}

}  // namespace

std::optional<PointerFacts> Machine::pointer_facts(CUdeviceptr pointer) {
  const std::lock_guard lock(mutex_);
  PointerFacts facts;
  if (const model::HeapAllocation* allocation = heap_.find(pointer)) {
    facts.kind = PointerFacts::Kind::heap;
    facts.device = allocation->device;
    facts.context = allocation->owner;
    facts.range = facts.mapping = {allocation->address, allocation->bytes};
    facts.access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    facts.legacy_ipc = allocation->opened == 0;
    facts.tokens_taken = tokens_taken_.contains(allocation->address);
    return facts;
  }
  if (const model::Mapping* mapping = virtual_memory_.find_mapping(pointer)) {
    const model::Allocation& memory = *mapping->handle->allocation;
    facts.kind = memory.place.is_host() ? PointerFacts::Kind::host_mapping : PointerFacts::Kind::device_mapping;
    facts.device = memory.place.is_host() ? 0 : memory.place.device;
    facts.mapping = {mapping->address, mapping->bytes};
    // A mapping may run on behind its reservation, into the next one or where there is none.
    if (const model::Reservation* reservation = virtual_memory_.find_reservation(pointer))
      facts.range = {reservation->address, reservation->bytes};
    facts.handle_types = mapping->handle->imported ? 0 : memory.properties.requestedHandleTypes;
    facts.rdma = memory.properties.allocFlags.gpuDirectRDMACapable != 0;
    facts.rights = mapping->rights;
    facts.buffer_id = memory.id;
    facts.tokens_taken = tokens_taken_.contains(mapping->address);
    return facts;
  }
  if (const model::PoolAllocation* allocation = stream_ordered_memory_.find(pointer)) {
    const model::Place place = allocation->pool->place();
    const model::PoolKind& pool = allocation->pool->kind();
    facts.kind = pool.managed      ? PointerFacts::Kind::managed_pool
                 : place.is_host() ? PointerFacts::Kind::host_pool
                                   : PointerFacts::Kind::device_pool;
    facts.device = place.is_host() ? pool.device : place.device;
    facts.range = facts.mapping = {allocation->address, allocation->bytes};
    facts.mapping = mapping_of(*allocation, pointer);
    facts.handle_types = pool.handle_types;
    facts.imported_host_pool = pool.imported && place.is_host();
    facts.rights = allocation->pool->rights;
    facts.pool = allocation->pool->handle;
    facts.buffer_id = allocation->id;
    return facts;
  }
  if (const HostRange* range = host_range(pointer)) {
    const bool read_only = !range->allocated && (range->flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
    facts.kind = PointerFacts::Kind::host;
    facts.context = range->owner;
    facts.range = facts.mapping = {range->address, range->bytes};
    facts.access = read_only ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    facts.device = range->device;
    facts.rounded = range->allocated && !range->managed;
    if (range->managed) facts.kind = PointerFacts::Kind::managed;
    return facts;
  }
  return std::nullopt;
}

std::optional<AddressRange> Machine::address_range(CUdeviceptr pointer, int device) {
  const auto facts = pointer_facts(pointer);
  if (!facts || !facts->open_to(device) || needs_peer_access(*facts, device)) return std::nullopt;
  if (facts->kind == PointerFacts::Kind::host_mapping) return AddressRange{0, facts->mapping.bytes};  // no device's
  return facts->is_pooled() ? facts->range : facts->mapping;
}

void Machine::note_tokens_taken(const PointerFacts& facts) {
  const std::lock_guard lock(mutex_);
  tokens_taken_.insert(facts.mapping.address);
}

Answer EmulatedDriver::pointer_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  if (data == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "data must not be null"};
  const auto facts = machine_.pointer_facts(pointer);
  if (!facts)
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, fmt::format("nothing is known of {:#x}", pointer)};
  const bool vmm = facts->is_mapping();
  const Context* current = contexts_.current();
  const int device = current == nullptr ? facts->device : current->device;
  const bool on_host = facts->on_host();
  const bool managed = facts->is_managed();
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: {
      const CUcontext owner = contexts_.find_by_id(facts->context);
      if (owner == nullptr && !vmm && !facts->is_pooled()) return unknown_attribute(attribute);
      return give(data, owner);
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give(data, static_cast<unsigned>(on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (vmm && current == nullptr)
        return {CUDA_ERROR_INVALID_CONTEXT, Rule::context_current,
                "whose address it is depends on the current context"};
      if (!facts->open_to(device) || machine_.needs_peer_access(*facts, device)) return unknown_attribute(attribute);
      return give(data, pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!on_host && !managed) return unknown_attribute(attribute);
      if ((vmm || facts->is_pooled()) && facts->rights.get(model::Accessor::host()) == CU_MEM_ACCESS_FLAGS_PROT_NONE)
        return unknown_attribute(attribute);
      return give(data, pointer);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS: {
      if (on_host || managed) return unknown_attribute(attribute);
      if (facts->is_pooled()) return give(data, std::array<unsigned long long, 2>{});  // there are none
      machine_.note_tokens_taken(*facts);
      const std::array<unsigned long long, 2> tokens = {facts->mapping.address, 1};
      return give(data, tokens);
    }
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return give(data, facts->tokens_taken || facts->kind == PointerFacts::Kind::managed ? 1U : 0U);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return give(data, facts->legacy_ipc ? 1U : 0U);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return give(data, managed ? 1U : 0U);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return give(
          data, static_cast<unsigned long long>(vmm || facts->is_pooled() ? facts->buffer_id : facts->mapping.address));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give(data, facts->device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return give(data, facts->imported_host_pool ? 0 : facts->range.address);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return give(data, static_cast<std::size_t>(facts->range.bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return give(data, 1U);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return give(data, static_cast<unsigned long long>(facts->handle_types));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return give(data, facts->rdma || facts->kind == PointerFacts::Kind::heap ? 1U : 0U);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      if (facts->imported_host_pool) return give(data, static_cast<unsigned>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
      return give(data, vmm && current == nullptr ? 0U : static_cast<unsigned>(facts->rights_of(device)));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return give(data, facts->pool);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: {
      if (facts->mapping.bytes == 0) return unknown_attribute(attribute);
      const std::uint64_t granule = facts->rounded ? machine_.configuration().profile.granularity : 1;
      return give(data, static_cast<std::size_t>((facts->mapping.bytes + granule - 1) / granule * granule));
    }
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      if (facts->mapping.bytes == 0) return unknown_attribute(attribute);
      return give(data, facts->mapping.address);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return give(
          data, static_cast<unsigned long long>(vmm || facts->is_pooled() ? facts->buffer_id : facts->mapping.address));
    default:
      if (static_cast<int>(attribute) == hardware_decompression) return give(data, 0U);
      return unknown_attribute(attribute);
  }
}

CUresult EmulatedDriver::cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  return initialised([&] { return pointer_attribute(data, attribute, pointer); });
}

CUresult EmulatedDriver::cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                                CUdeviceptr pointer) {
  return initialised([&]() -> Answer {
    if (attributes == nullptr || data == nullptr || count == 0)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, "attributes and data must not be null, count not 0"};
    for (unsigned index = 0; index < count; ++index)
      if (!exists(attributes[index])) return unknown_attribute(attributes[index]);
    // Unlike the single query, this one answers zeros for a pointer of which nothing is known.
    for (unsigned index = 0; index < count; ++index) {
      if (pointer_attribute(data[index], attributes[index], pointer).ok()) continue;
      if (data[index] == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "data must not be null"};
      const bool ordinal = attributes[index] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
      if (ordinal) (void)give(data[index], -2);  // CU_DEVICE_INVALID
      const auto wide = attributes[index];
      const bool word = wide == CU_POINTER_ATTRIBUTE_MEMORY_TYPE || wide == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
                        wide == CU_POINTER_ATTRIBUTE_IS_MANAGED || wide == CU_POINTER_ATTRIBUTE_MAPPED ||
                        wide == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE ||
                        wide == CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE ||
                        wide == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS;
      if (word) (void)give(data[index], 0U);
      if (!ordinal && !word) (void)give(data[index], 0ULL);
    }
    return {};
  });
}

}  // namespace cuvmm::emulator::api
