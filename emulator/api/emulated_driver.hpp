// The emulated driver: the driver's entry points over the model, the memory and the execution engine.
#pragma once

#include <atomic>
#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "driver/fork_count.hpp"
#include "driver/interface.hpp"
#include "emulator/api/context.hpp"
#include "emulator/api/handle_table.hpp"
#include "emulator/api/machine.hpp"
#include "emulator/execution/engine.hpp"
#include "emulator/host_kernel.hpp"

namespace cuvmm::emulator::api {

// Entry points are implemented by subject in api/*.cpp. Each runs inside answer(), which turns the model's Answer into
// a code and keeps the explanation for the thread, and turns exceptions into codes.
class EmulatedDriver final : public driver::Interface {
 public:
  // Makes the machine, or becomes one of its processes.
  explicit EmulatedDriver(const Configuration& configuration);
  ~EmulatedDriver() override;
  EmulatedDriver(const EmulatedDriver&) = delete;
  EmulatedDriver& operator=(const EmulatedDriver&) = delete;

#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments) CUresult name parameters override;
#include "driver/entry_points.def"

  [[nodiscard]] std::string description() const override;
  [[nodiscard]] bool emulated() const noexcept override {
    return true;
  }
  [[nodiscard]] std::optional<driver::EmulatedPlace> emulated_place() const override;
  [[nodiscard]] std::string explanation() const override;
  // All but what is newer than the profile's driver.
  [[nodiscard]] bool has(driver::EntryPoint entry) const noexcept override;

  // For tests and tools that know that they have an emulated driver before them.
  [[nodiscard]] Machine& machine() noexcept {
    return machine_;
  }
  [[nodiscard]] execution::Engine& engine() noexcept {
    return engine_;
  }
  // From now on both know the same user objects, which can be made before a driver is initialised. Before anybody else
  // calls this one.
  void share_user_objects_of(const EmulatedDriver& other) noexcept {
    user_objects_ = other.user_objects_;
  }
  // What handles are kept for.
  struct LiveHandles {
    std::size_t streams = 0, events = 0, graphs = 0;
    friend bool operator==(const LiveHandles&, const LiveHandles&) = default;
  };
  [[nodiscard]] LiveHandles live_handles() const {
    return {streams_.size(), events_.size(), graphs_.size()};
  }

 private:
  struct StreamEntry {
    execution::StreamPointer stream;
    Context* context = nullptr;
  };

  // An instantiated graph.
  struct GraphExecEntry {
    execution::GraphExecPointer exec;
    unsigned long long flags = 0;  // of its instantiation
  };

  // An object of the caller's, and the references to it that are the caller's.
  struct UserObject {
    std::weak_ptr<void> object;
    std::uint64_t references = 0;
    std::shared_ptr<void> held;  // while there are any
  };
  struct UserObjects {
    std::mutex mutex;
    HandleTable<CUuserObject, UserObject> table;
  };

  using MemoryPoolPointer = std::shared_ptr<model::MemoryPool>;
  // What kind of memory is where: each has a pool of its own.
  struct PoolLocation {
    CUmemAllocationType type = CU_MEM_ALLOCATION_TYPE_INVALID;
    CUmemLocationType where = CU_MEM_LOCATION_TYPE_INVALID;
    int id = 0;  // 0 where there is one such location alone
    static PoolLocation of(CUmemAllocationType type, const CUmemLocation& location);
    friend auto operator<=>(const PoolLocation&, const PoolLocation&) = default;
  };
  struct PoolsOfLocation {
    CUmemoryPool standard = nullptr;  // the default pool
    CUmemoryPool current = nullptr;
  };

  struct Module {
    std::uint64_t context = 0;  // ContextLife::id
    std::vector<std::string> kernel_names;
  };

  struct Function {
    std::weak_ptr<Module> module;
    const HostKernel* kernel = nullptr;
  };

  // One side of a copy: where it is, and on whose behalf it is touched. The host stands for the stream's own device.
  struct Operand {
    CUdeviceptr address = 0;
    AddressKind kind = AddressKind::copy;
    model::Accessor who = model::Accessor::host();
  };

  // When a copy returns.
  enum class CopyWait {
    host_side,    // when it is finished
    device_side,  // at once
    if_pageable,  // when it is finished, if it touches memory of the process that is not page-locked; else at once
  };

  // Runs `work() -> Answer` and answers its code. `call` is the entry point's name, here and below: that of the
  // function in which this is written.
  template <class Work>
  CUresult answer(Work&& work, const char* call = __builtin_FUNCTION()) noexcept;
  template <class Work>
  CUresult answer_of(Work&& work, const char* call) noexcept;
  CUresult conclude(const char* call, CUresult code, Rule rule, const char* detail) noexcept;

  // The same after checking that the driver is initialised; with the current context, which must be healthy; with the
  // stream of that handle.
  template <class Work>
  CUresult initialised(Work&& work, const char* call = __builtin_FUNCTION()) noexcept;
  template <class Work>
  CUresult initialised_else(CUresult otherwise, Work&& work, const char* call = __builtin_FUNCTION()) noexcept;
  template <class Work>
  CUresult without_driver(Work&& work, const char* call = __builtin_FUNCTION()) noexcept;
  template <class Work>
  CUresult with_context(Work&& work, const char* call = __builtin_FUNCTION()) noexcept;
  template <class Work>
  CUresult with_stream(CUstream handle, Work&& work, const char* call = __builtin_FUNCTION()) noexcept;

  [[nodiscard]] Answer check_initialised() const;
  [[nodiscard]] Answer check_device(CUdevice device) const;
  [[nodiscard]] Answer check_form(driver::EntryPoint entry) const;
  [[nodiscard]] Answer check_unsafe_during_capture() {
    return engine_.check_unsafe_call();
  }

  // Contexts.
  // The thread's current context: if it is alive; if it is healthy too.
  Answer living_context(ActiveContext* context);
  Answer current_context(ActiveContext* context);
  // For calls that need no context, but fail while one is current that has failed.
  Answer check_not_failed();
  Answer find_to_make_current(CUcontext handle, Context** context);
  // Refuses new contexts on a device where one has failed.
  Answer check_device_whole(CUdevice device);
  Answer retain_primary(CUcontext* context, CUdevice device);
  void start(Context& context);
  void end(Context& context, const std::optional<ContextLife>& life);
  void release_belongings(Context& context, const ContextLife& life);
  void forget_handles(Context& context, const execution::ContextPointer& ended);

  Answer give_owner(const ActiveContext& context, Answer made);
  // Waits for the work of the context that owns memory.
  Answer drain_users(std::uint64_t owner, std::uint64_t address, std::uint64_t bytes);
  // Waits for the work of any context that touches the range.
  void drain_others(std::uint64_t address, std::uint64_t bytes);
  void drain_others_without_fail(std::uint64_t address, std::uint64_t bytes);

  // Streams.
  Answer find_stream(CUstream handle, StreamEntry* found);
  Answer find_working_stream(CUstream handle, StreamEntry* found);
  Answer check_writable(CUdeviceptr address, std::size_t bytes, model::Accessor who);
  template <class Value>
  Answer submit_value_operation(const StreamEntry& entry, CUdeviceptr address, Value value, bool write,
                                unsigned condition);
  template <class Value>
  CUresult write_value(CUstream stream, CUdeviceptr address, Value value, unsigned flags,
                       const char* call = __builtin_FUNCTION()) noexcept;
  template <class Value>
  CUresult wait_value(CUstream stream, CUdeviceptr address, Value value, unsigned flags,
                      const char* call = __builtin_FUNCTION()) noexcept;
  CUresult create_stream(CUstream* stream, unsigned flags, int priority,
                         const char* call = __builtin_FUNCTION()) noexcept;
  CUresult record_event(CUevent event, CUstream stream, unsigned flags,
                        const char* call = __builtin_FUNCTION()) noexcept;
  CUgraph graph_handle_locked(const execution::GraphPointer& graph);
  void forget_lost_graphs();
  void forget_lost_graphs_locked();

  // Memory pools, stream-ordered memory and memory of graphs.
  [[nodiscard]] Answer check_pools_supported() const;
  Answer find_pool(CUmemoryPool handle, MemoryPoolPointer* pool);
  [[nodiscard]] Answer check_pool_location(CUmemAllocationType type, const CUmemLocation& location) const;
  [[nodiscard]] static Answer check_pool_handle_types(const CUmemPoolProps& properties);
  [[nodiscard]] Answer check_pool_properties(const CUmemPoolProps& properties) const;
  [[nodiscard]] Answer check_new_pool(const CUmemPoolProps& properties);
  [[nodiscard]] static model::Place place_of_pool(const PoolLocation& location);
  [[nodiscard]] Answer check_pool_access(model::Place place, const CUmemLocation& location) const;
  CUmemoryPool add_pool(const model::PoolKind& kind);
  CUmemoryPool add_created_pool(const PoolLocation& location, const model::PoolKind& kind);
  CUmemoryPool add_imported_pool(const memory::SharedPool& shared);
  Answer forget_import(const model::MemoryPool& pool, bool* last);
  [[nodiscard]] static Answer check_not_imported(const model::MemoryPool& pool);
  [[nodiscard]] static model::PoolKind kind_of_pool(const PoolLocation& location);
  PoolsOfLocation& pools_of_locked(const PoolLocation& location);
  Answer pool_of_location(CUmemoryPool* pool, const CUmemLocation* location, CUmemAllocationType type, bool standard);
  Answer set_pool_of_location(const PoolLocation& location, CUmemoryPool handle);
  Answer allocate_in_stream(CUdeviceptr* pointer, std::size_t bytes, const MemoryPoolPointer& pool,
                            const StreamEntry& entry);
  Answer allocate_async(CUdeviceptr* pointer, std::size_t bytes, CUstream stream, std::optional<CUmemoryPool> from);
  Answer free_in_stream(CUdeviceptr pointer, const StreamEntry& entry);
  void undo_allocation(CUdeviceptr address, model::MemoryPool& pool) noexcept;
  bool free_pooled(CUdeviceptr address, Answer& freed);
  Answer free_heap(CUdeviceptr pointer);
  CUresult allocate_page_locked(void** pointer, std::size_t bytes, unsigned flags,
                                const char* call = __builtin_FUNCTION()) noexcept;
  MemoryPoolPointer graph_pool(int device);
  Answer capture_allocation(CUdeviceptr* pointer, std::size_t bytes, const model::MemoryPool& like,
                            const StreamEntry& entry);
  Answer capture_free(CUdeviceptr pointer, const StreamEntry& entry);
  Answer begin_graph_memory(const GraphExecEntry& exec, std::vector<execution::GraphMemoryNode>& begun);
  void cancel_graph_memory(const std::vector<execution::GraphMemoryNode>& begun) noexcept;
  // What synchronizing does besides waiting.
  Answer synchronized(Answer finished);

  // Copies.
  [[nodiscard]] bool pageable(CUdeviceptr address);
  [[nodiscard]] bool is_promised(CUdeviceptr address, std::uint64_t bytes, bool captured);
  [[nodiscard]] bool faults_later(const Answer& refused) const;
  Answer check_copy(const Operand& destination, const Operand& source, std::size_t bytes, Access& to, Access& from);
  [[nodiscard]] static CUresult fault_of_vanished_memory(bool by_copy_engine);
  [[nodiscard]] bool is_captured(const execution::StreamPointer& stream);
  void use_host_rights(Operand& operand, std::size_t bytes, bool write);
  Answer check_wrapped_copy(const Operand& destination, const Operand& source, std::size_t bytes);
  execution::Operation copy_operation(const Operand& destination, const Operand& source, std::size_t bytes,
                                      CUresult code);
  Answer copy(CUstream stream, Operand destination, Operand source, std::size_t bytes, CopyWait wait);
  CUresult copy_in_context(Operand destination, Operand source, std::size_t bytes, CUstream stream, CopyWait wait,
                           const char* call = __builtin_FUNCTION()) noexcept;
  CUresult copy_between_contexts(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                                 CUcontext source_context, std::size_t bytes, CUstream stream,
                                 const char* call = __builtin_FUNCTION()) noexcept;
  Answer fill(CUstream stream, CUdeviceptr destination, std::uint32_t pattern, std::size_t pattern_bytes,
              std::size_t count);
  CUresult fill_in_context(CUdeviceptr destination, std::uint32_t pattern, std::size_t pattern_bytes, std::size_t count,
                           CUstream stream, const char* call = __builtin_FUNCTION()) noexcept;

  // User objects.
  Answer find_user_object(CUuserObject handle, unsigned count, std::shared_ptr<UserObject>* found);
  static void release_own(UserObject& object, unsigned count, std::shared_ptr<void>& released,
                          unsigned held_meanwhile = 0);

  // Kernels.
  void add_kernel(HostKernel kernel);
  void forget_functions();
  Answer launch(const StreamEntry& entry, const HostKernel& kernel, const KernelShape& shape,
                KernelArguments arguments);
  struct OpenView;
  std::optional<execution::Outcome> open_view(const HostKernel& kernel, const KernelView& view, model::Accessor who,
                                              OpenView& opened);
  [[nodiscard]] bool is_still_valid(const KernelView& view, model::Accessor who, const Access& access);
  execution::Outcome run_kernel(const HostKernel& kernel, const KernelShape& shape,
                                const std::vector<KernelView>& views, const KernelArguments& arguments,
                                std::uint64_t tries, model::Accessor who, std::uint64_t watched_as);

  // Pointers.
  Answer pointer_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer);

  std::atomic<bool> initialised_{false};
  std::atomic<unsigned> initialised_at_fork_count_{driver::fork_count()};
  Machine machine_;
  ContextTable contexts_;
  std::map<std::string, HostKernel, std::less<>> kernels_;  // never changes once made
  HandleTable<CUmodule, Module> modules_;
  HandleTable<CUfunction, Function> functions_;
  HandleTable<CUstream, StreamEntry> streams_;
  HandleTable<CUevent, execution::Event> events_;
  HandleTable<CUgraph, execution::Graph> graphs_;
  HandleTable<CUgraphExec, GraphExecEntry> graph_execs_;
  HandleTable<CUmemoryPool, model::MemoryPool> pools_;
  std::shared_ptr<UserObjects> user_objects_ = std::make_shared<UserObjects>();
  std::mutex pools_of_locations_mutex_;
  std::map<PoolLocation, PoolsOfLocation> pools_of_locations_;
  std::map<CUmemoryPool, PoolLocation> created_pools_;
  struct ImportedPool {
    CUmemoryPool handle = nullptr;
    std::size_t times = 0;  // that it was imported and not destroyed
  };
  std::map<std::uint64_t, ImportedPool> imported_pools_;  // by MemoryPool::shared_id
  std::map<int, MemoryPoolPointer> graph_pools_;
  std::mutex captured_graphs_mutex_;
  struct CapturedGraph {
    CUgraph handle = nullptr;
    bool finished = false;  // its capture has ended well: the graph is the caller's
  };
  std::map<std::uint64_t, CapturedGraph> captured_graphs_;  // by Graph::id
  execution::Engine engine_;                                // last: what it runs uses the rest, and ends first
};

}  // namespace cuvmm::emulator::api
