#include "emulator/api/context.hpp"

#include <atomic>
#include <unordered_map>
#include <utility>

#include "emulator/execution/context.hpp"
#include "emulator/thread_storage.hpp"

namespace cuvmm::emulator::api {
namespace {

std::atomic<std::uint64_t> next_table_id{1};

// A thread's stacks, by table: a process may have several emulated drivers, and a table may end before a thread does.
std::unordered_map<std::uint64_t, std::vector<Context*>>& stacks_of_this_thread() {
  return of_this_thread<std::unordered_map<std::uint64_t, std::vector<Context*>>>();
}

}  // namespace

ContextTable::ContextTable() : table_id_(next_table_id++) {}

ContextTable::~ContextTable() {
  stacks_of_this_thread().erase(table_id_);
}

std::vector<Context*>& ContextTable::stack() const {
  return stacks_of_this_thread()[table_id_];
}

Context* ContextTable::current() const {
  const auto& stack = this->stack();
  return stack.empty() ? nullptr : stack.back();
}

Context* ContextTable::find(CUcontext handle) {
  const std::lock_guard lock(mutex_);
  auto found = contexts_.find(handle);
  return found != contexts_.end() && found->second->life ? found->second.get() : nullptr;
}

Context& ContextTable::find_or_adopt(CUcontext handle) {
  const std::lock_guard lock(mutex_);
  if (auto found = contexts_.find(handle); found != contexts_.end()) return *found->second;
  auto& adopted = adopted_[handle];
  if (adopted == nullptr) adopted = std::make_unique<Context>(handle);
  return *adopted;
}

std::shared_ptr<execution::Context> ContextTable::execution_of(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  for (auto& [handle, context] : contexts_)
    if (context->life && context->life->id == id) return context->life->execution;
  return nullptr;
}

CUcontext ContextTable::find_by_id(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  for (auto& [handle, context] : contexts_)
    if (context->life && context->life->id == id) return handle;
  return nullptr;
}

Context& ContextTable::add_locked(int device, bool primary) {
  auto context = std::make_unique<Context>(device, primary);
  Context& added = *context;
  contexts_.emplace(added.handle(), std::move(context));
  return added;
}

Context& ContextTable::add(int device) {
  const std::lock_guard lock(mutex_);
  return add_locked(device, false);
}

void ContextTable::remove(Context& context) {
  const std::lock_guard lock(mutex_);
  contexts_.erase(context.handle());
}

Context& ContextTable::primary(int device) {
  const std::lock_guard lock(mutex_);
  auto [entry, first] = primaries_.try_emplace(device, nullptr);
  if (entry->second == nullptr) entry->second = &add_locked(device, true);
  return *entry->second;
}

std::shared_ptr<execution::Context> ContextTable::execution_with(std::uint64_t execution_id) {
  const std::lock_guard lock(mutex_);
  for (const auto& [handle, context] : contexts_)
    if (context->life && context->life->execution->id == execution_id) return context->life->execution;
  return nullptr;
}

std::uint64_t ContextTable::life_of(const Context& context) {
  const std::lock_guard lock(mutex_);
  return context.life ? context.life->id : 0;
}

bool ContextTable::is_dead(CUcontext handle) {
  const std::lock_guard lock(mutex_);
  auto found = contexts_.find(handle);
  return found != contexts_.end() && !found->second->life;
}

std::optional<ActiveContext> ContextTable::active(Context& context) {
  const std::lock_guard lock(mutex_);
  if (!context.life) return std::nullopt;
  return ActiveContext{&context, context.life->id, context.device, context.flags, context.life->execution};
}

void ContextTable::begin(Context& context, std::shared_ptr<execution::Context> execution) {
  context.life = ContextLife{next_life_++, std::move(execution), {}};
}

}  // namespace cuvmm::emulator::api
