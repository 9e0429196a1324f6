#include "emulator/sharing/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <system_error>

#include "emulator/memory/file_limit.hpp"
#include "emulator/sharing/replies.hpp"

namespace cuvmm::emulator::sharing {
namespace {

using namespace cuvmm::abi;
using memory::FileDescriptor;

// What a fabric handle holds; the rest of its 64 bytes is zero.
struct FabricContent {
  char magic[8] = {'c', 'u', 'v', 'm', 'm', 'f', 'b', '2'};
  std::uint64_t machine = 0;
  std::uint64_t token = 0;
};

// What a legacy IPC handle holds.
struct IpcContent {
  char magic[8] = {'c', 'u', 'v', 'm', 'm', 'i', 'p', '2'};
  std::uint64_t machine = 0;
  std::uint64_t client = 0;
  std::uint64_t token = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

}  // namespace

std::string SharedMemory::machine_identity() const {
  return fmt::format("{:016x}", machine_);
}

SharedMemory::SharedMemory(const Configuration& configuration, std::unique_ptr<Connection> connection,
                           const broker::Welcome& welcome, FileDescriptor channels)
    : node_(configuration.node),
      channel_count_(configuration.imex_channel_count()),
      descriptor_limit_(configuration.descriptor_limit),
      connection_(std::move(connection)),
      client_(welcome.client),
      machine_(welcome.machine),
      device_bytes_(welcome.device_bytes),
      host_bytes_(welcome.host_bytes),
      channels_(std::move(channels)) {}

SharedMemory::Places::node_type SharedMemory::make_note() {
  Places note;
  return note.extract(note.try_emplace(0).first);
}

void SharedMemory::keep(Places::node_type note, const broker::SharedAllocation& given) noexcept {
  note.key() = given.id;
  note.mapped() = {given.place, given.offset};
  where_.insert(std::move(note));  // or it is noted already
}

void SharedMemory::settle() {
  for (; !given_up_.empty(); given_up_.erase(given_up_.begin()))
    (void)connection_->ask(broker::GiveBack{given_up_.begin()->first});
  for (auto pool = pools_.begin(); pool != pools_.end();) {
    if (pool->second == 0) (void)connection_->ask(broker::DropPool{pool->first});
    pool = pool->second == 0 ? pools_.erase(pool) : std::next(pool);
  }
}

std::optional<std::uint64_t> SharedMemory::take(model::Place place, std::uint64_t bytes,
                                                const CUmemAllocationProp& properties) {
  settle();
  auto note = make_note();
  const broker::Reply reply = connection_->ask(broker::Create{here(place), bytes, broker::Properties(properties)});
  if (is(reply, broker::Refusal::too_little_left)) return std::nullopt;
  if (is(reply, broker::Refusal::file_limit) && std::get<broker::Refused>(reply).detail == EFBIG)
    throw memory::FileLimitReached();
  const broker::SharedAllocation& made = expect<broker::Memory>(reply).allocation;
  keep(std::move(note), made);
  return made.id;
}

void SharedMemory::give_back(const model::Allocation& allocation) noexcept {
  given_up_.insert(where_.extract(allocation.id));
  try {
    settle();
  } catch (const std::exception&) {
    return;  // it is told before the next question; or the broker is lost, and with it all that this process held
  }
}

broker::Usage SharedMemory::usage(const model::Place& place) {
  settle();
  return expect<broker::Usage>(connection_->ask(broker::AskUsage{here(place)}));
}

std::uint64_t SharedMemory::free(model::Place place) {
  return usage(place).free;
}

std::size_t SharedMemory::live_exports() {
  return static_cast<std::size_t>(usage(model::Place::on_host()).exports);
}

std::uint64_t SharedMemory::total(model::Place place) const {
  return place.is_host() ? host_bytes_ : device_bytes_;
}

// As the driver does: a channel is a file that the process may open, or may not.
bool SharedMemory::has_imex_channel() {
  for (int number = 0; number < channel_count_; ++number) {
    const FileDescriptor channel(
        ::openat(channels_.get(), fmt::format("channel{}", number).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (channel) return true;
    if (errno == EMFILE || errno == ENFILE)
      throw std::system_error(errno, std::generic_category(), "cannot open an IMEX channel");
  }
  return false;
}

PlaceBytes& SharedMemory::file(const broker::NodePlace& place) {
  std::unique_ptr<PlaceBytes>& file = files_[place];
  if (file == nullptr) {
    FileDescriptor received;
    (void)expect<broker::Done>(connection_->ask(broker::AskFile{place}, -1, &received));
    file = std::make_unique<PlaceBytes>(std::move(received));
  }
  return *file;
}

memory::Extent SharedMemory::extent(const model::Allocation& allocation) {
  const Where& where = where_.at(allocation.id);
  return {&file(where.place), where.offset};
}

Answer SharedMemory::too_many_exports(const broker::Reply& refused) const {
  return {CUDA_ERROR_OPERATING_SYSTEM, Rule::descriptor_limit,
          fmt::format("{} exported descriptors are open, and descriptor-limit allows no more",
                      std::get<broker::Refused>(refused).detail)};
}

Answer SharedMemory::export_descriptor(int* descriptor, const std::vector<model::Allocation*>& memory,
                                       memory::ExportRegistry::Use use) {
  broker::ExportDescriptor request;
  for (const model::Allocation* allocation : memory) request.ids.push_back(allocation->id);
  request.importable = use == memory::ExportRegistry::Use::import;
  if (descriptor_limit_) request.limit = *descriptor_limit_;
  FileDescriptor received;
  const broker::Reply reply = connection_->ask(request, -1, &received);
  if (is(reply, broker::Refusal::descriptor_limit)) return too_many_exports(reply);
  (void)expect<broker::Done>(reply);
  *descriptor = received.release();
  return {};
}

model::Allocation& SharedMemory::adopt(Places::node_type note, const broker::SharedAllocation& given) {
  keep(std::move(note), given);
  model::Allocation facts;
  facts.id = given.id;
  facts.place = given.place.place();
  facts.bytes = given.bytes;
  facts.properties = given.properties.driver_form();
  facts.remote = given.place.node != node_;
  facts.multicast_devices = given.devices;
  return store().adopt(facts);
}

Answer SharedMemory::import_descriptor(model::Allocation** memory, int descriptor) {
  Answer foreign(CUDA_ERROR_UNKNOWN, Rule::import_descriptor,
                 "the descriptor is not open here, or is no export of this node");
  if (descriptor < 0 || ::fcntl(descriptor, F_GETFD) < 0) return foreign;
  settle();
  auto note = make_note();
  const broker::Reply reply = connection_->ask(broker::ImportDescriptor{}, descriptor);
  if (is(reply, broker::Refusal::not_known)) return foreign;
  if (is(reply, broker::Refusal::other_kind))
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::import_descriptor, "the descriptor is a memory pool's"};
  *memory = &adopt(std::move(note), expect<broker::Memory>(reply).allocation);
  return {};
}

std::uint64_t SharedMemory::token(broker::TokenKind kind, const model::Allocation& memory) {
  return expect<broker::Token>(connection_->ask(broker::ExportToken{kind, memory.id})).token;
}

Answer SharedMemory::export_fabric(CUmemFabricHandle* handle, model::Allocation& memory) {
  FabricContent content;
  content.machine = machine_;
  content.token = token(broker::TokenKind::fabric, memory);
  write(handle, content);
  return {};
}

Answer SharedMemory::import_fabric(model::Allocation** memory, const CUmemFabricHandle& handle, bool anew) {
  Answer gone(CUDA_ERROR_INVALID_VALUE, Rule::import_descriptor,
              "no memory was exported as this handle, or it is gone");
  const auto content = read<FabricContent>(handle);
  if (!content || content->machine != machine_) return gone;
  settle();
  auto note = make_note();
  const broker::Reply reply = connection_->ask(broker::ImportToken{broker::TokenKind::fabric, content->token, 0, anew});
  if (is(reply, broker::Refusal::not_known)) return gone;
  if (is(reply, broker::Refusal::lost_multicast)) return memory::lost_multicast();
  *memory = &adopt(std::move(note), expect<broker::Memory>(reply).allocation);
  return {};
}

Answer SharedMemory::export_ipc(CUipcMemHandle* handle, const memory::IpcRange& range) {
  IpcContent content;
  content.machine = machine_;
  content.client = client_;
  content.token = token(broker::TokenKind::ipc, *range.memory);
  content.offset = range.offset;
  content.bytes = range.bytes;
  write(handle, content);
  return {};
}

Answer SharedMemory::import_ipc(memory::IpcRange* range, const CUipcMemHandle& handle) {
  const auto content = read<IpcContent>(handle);
  if (!content)
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, "the handle does not come from cuIpcGetMemHandle"};
  Answer gone(CUDA_ERROR_INVALID_VALUE, Rule::ipc_open,
              "the memory of the handle is gone, or is on another machine or node");
  if (content->machine != machine_) return gone;
  if (content->client == client_)
    return {CUDA_ERROR_INVALID_CONTEXT, Rule::ipc_other_process, "the handle comes from this process"};
  settle();
  auto note = make_note();
  const broker::Reply reply =
      connection_->ask(broker::ImportToken{broker::TokenKind::ipc, content->token, content->client, false});
  if (is(reply, broker::Refusal::owner_gone))
    return {CUDA_ERROR_INVALID_HANDLE, Rule::ipc_open, "the process that made the handle has ended"};
  if (is(reply, broker::Refusal::not_known)) return gone;
  model::Allocation& memory = adopt(std::move(note), expect<broker::Memory>(reply).allocation);
  if (content->offset > memory.bytes || content->bytes > memory.bytes - content->offset) {
    store().drop_reference(memory);
    return gone;
  }
  *range = {&memory, content->offset, content->bytes};
  return {};
}

}  // namespace cuvmm::emulator::sharing
