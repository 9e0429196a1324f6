// Pools that processes pass on to each other.
#include <fcntl.h>

#include "emulator/sharing/replies.hpp"
#include "emulator/sharing/shared_memory.hpp"

namespace cuvmm::emulator::sharing {
namespace {

using namespace cuvmm::abi;
using memory::FileDescriptor;

// What tells of an exported allocation; the rest of the 64 bytes is zero.
struct PointerContent {
  char magic[8] = {'c', 'u', 'v', 'm', 'm', 'p', 'p', '2'};
  std::uint64_t machine = 0;
  std::uint64_t pool = 0;
  std::uint64_t token = 0;
};

}  // namespace

Answer SharedMemory::export_pool(int* descriptor, memory::SharedPool* pool) {
  settle();
  std::map<std::uint64_t, std::size_t> note;  // so that what is answered needs no memory
  if (pool->id == 0) note.emplace(0, 1);
  broker::ExportPool request{pool->id, here(pool->place)};
  if (descriptor_limit_) request.limit = *descriptor_limit_;
  FileDescriptor received;
  const broker::Reply reply = connection_->ask(request, -1, &received);
  if (is(reply, broker::Refusal::descriptor_limit)) return too_many_exports(reply);
  const std::uint64_t id = expect<broker::Token>(reply).token;
  if (pool->id == 0) {
    auto node = note.extract(note.begin());
    node.key() = pool->id = id;
    pools_.insert(std::move(node));
  }
  *descriptor = received.release();
  return {};
}

Answer SharedMemory::import_pool(memory::SharedPool* pool, int descriptor) {
  Answer foreign(CUDA_ERROR_UNKNOWN, Rule::import_descriptor,
                 "the descriptor is not open here, or is no pool's of this node");
  if (descriptor < 0 || ::fcntl(descriptor, F_GETFD) < 0) return foreign;
  settle();
  std::map<std::uint64_t, std::size_t> note;
  auto node = note.extract(note.emplace(0, 0).first);
  const broker::Reply reply = connection_->ask(broker::ImportPool{}, descriptor);
  if (is(reply, broker::Refusal::not_known)) return foreign;
  if (is(reply, broker::Refusal::other_kind))
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::import_descriptor, "the descriptor is one of memory"};
  const auto& imported = expect<broker::Pool>(reply);
  node.key() = imported.pool;
  const auto inserted = pools_.insert(std::move(node));  // or it is had already
  ++inserted.position->second;
  *pool = {imported.pool, imported.place.place()};
  return {};
}

void SharedMemory::drop_pool(std::uint64_t id) noexcept {
  const auto found = pools_.find(id);
  if (found == pools_.end() || --found->second > 0) return;
  try {
    settle();
  } catch (const std::exception&) {
    return;  // as with memory that is given back
  }
}

Answer SharedMemory::export_pool_range(CUmemPoolPtrExportData* data, std::uint64_t pool,
                                       const memory::PoolRange& range) {
  broker::ExportPoolRange request{pool, {}, range.offset, range.bytes};
  for (const model::Allocation* allocation : range.memory) request.ids.push_back(allocation->id);
  PointerContent content;
  content.machine = machine_;
  content.pool = pool;
  content.token = expect<broker::Token>(connection_->ask(request)).token;
  write(data, content);
  return {};
}

Answer SharedMemory::import_pool_range(memory::PoolRange* range, std::uint64_t pool,
                                       const CUmemPoolPtrExportData& data) {
  Answer unknown(CUDA_ERROR_INVALID_VALUE, Rule::pool_shared,
                 "no allocation of this pool was exported as this, or it is gone");
  const auto content = read<PointerContent>(data);
  if (!content || content->machine != machine_ || content->pool != pool) return unknown;
  settle();
  const broker::Reply reply = connection_->ask(broker::ImportPoolRange{pool, content->token});
  if (is(reply, broker::Refusal::not_known)) return unknown;
  const auto& found = expect<broker::PoolRange>(reply);
  *range = {{}, found.offset, found.bytes};
  const auto give_up = [&] {
    for (model::Allocation* had : range->memory) store().drop_reference(*had);
    range->memory.clear();
  };
  try {
    range->memory.reserve(found.pieces);
    for (std::uint64_t index = 0; index < found.pieces; ++index) {
      auto note = make_note();
      const broker::Reply piece = connection_->ask(broker::OpenPoolMemory{pool, content->token, index});
      if (is(piece, broker::Refusal::not_known)) {  // it went meanwhile
        give_up();
        return unknown;
      }
      range->memory.push_back(&adopt(std::move(note), expect<broker::Memory>(piece).allocation));
    }
  } catch (...) {
    give_up();
    throw;
  }
  std::uint64_t bytes = 0;
  for (const model::Allocation* piece : range->memory) bytes += piece->bytes;
  if (range->offset <= bytes && range->bytes <= bytes - range->offset) return {};
  give_up();
  return unknown;
}

}  // namespace cuvmm::emulator::sharing
