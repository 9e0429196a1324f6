#include "emulator/api/context.hpp"

#include <atomic>
#include <unordered_map>

namespace cuvmm::emulator::api {
namespace {

std::atomic<std::uint64_t> next_table_id{1};

// A thread's stacks, by table: a process may have several emulated drivers, and a table may end before a thread does.
std::unordered_map<std::uint64_t, std::vector<Context*>>& stacks_of_this_thread() {
  thread_local std::unordered_map<std::uint64_t, std::vector<Context*>> stacks;
  return stacks;
}

}  // namespace

ContextTable::ContextTable() : table_id_(next_table_id++) {}

ContextTable::~ContextTable() { stacks_of_this_thread().erase(table_id_); }

std::vector<Context*>& ContextTable::stack() const { return stacks_of_this_thread()[table_id_]; }

Context* ContextTable::current() const {
  const auto& stack = this->stack();
  return stack.empty() ? nullptr : stack.back();
}

Context* ContextTable::find_any(CUcontext handle) {
  const std::lock_guard lock(mutex_);
  auto found = contexts_.find(handle);
  return found == contexts_.end() ? nullptr : found->second.get();
}

Context* ContextTable::find(CUcontext handle) {
  Context* context = find_any(handle);
  return context != nullptr && locked([&] { return context->live; }) ? context : nullptr;
}

Context* ContextTable::find_by_id(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  for (auto& [handle, context] : contexts_)
    if (context->id == id) return context.get();
  return nullptr;
}

Context& ContextTable::add(int device, bool primary) {
  const std::lock_guard lock(mutex_);
  auto context = std::make_unique<Context>();
  context->id = next_id_++;
  context->device = device;
  context->primary = primary;
  context->live = true;
  Context& added = *context;
  contexts_.emplace(added.handle(), std::move(context));
  return added;
}

Context& ContextTable::primary(int device) {
  {
    const std::lock_guard lock(mutex_);
    if (auto found = primaries_.find(device); found != primaries_.end()) return *found->second;
  }
  Context& added = add(device, true);
  const std::lock_guard lock(mutex_);
  auto [entry, first] = primaries_.emplace(device, &added);
  if (first) added.live = false;
  return *entry->second;
}

}  // namespace cuvmm::emulator::api
