// The process that a Party tells what to do.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "command/input_error.hpp"
#include "cuvmm/copy.hpp"
#include "cuvmm/mapped_range.hpp"
#include "cuvmm/sharing/sharing.hpp"
#include "tour/emulated_machine.hpp"
#include "tour/gpu.hpp"
#include "tour/party.hpp"
#include "tour/party_message.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

using sharing::Deadline;
using sharing::DescriptorSocket;

// Between requests. The end of the one who asks is noticed at once, so this is for one who has stopped for good.
constexpr auto patience = std::chrono::hours(1);

std::string rest_of(std::istringstream& words) {
  std::string rest;
  std::getline(words >> std::ws, rest);
  return rest;
}

// One request after the other; what fails is told to who asked.
class PartyProcess {
 public:
  PartyProcess(const Driver& driver, int device, DescriptorSocket socket)
      : driver_(driver), gpu_(driver, DeviceOrdinal(device)), socket_(std::move(socket)) {
    gpu_.require_kernels();
    gpu_.make_current();
  }
  PartyProcess(const PartyProcess&) = delete;
  PartyProcess& operator=(const PartyProcess&) = delete;
  PartyProcess(PartyProcess&&) = delete;
  PartyProcess& operator=(PartyProcess&&) = delete;
  ~PartyProcess() { gpu_.finish_work(); }

  // Returns when the other side has ended the connection.
  void work() {
    while (const auto request = next()) answer(*request);
  }

 private:
  std::optional<sharing::Message> next() {
    auto request = socket_.try_receive(Deadline::in(patience));
    if (request) return std::move(request).value();
    if (request.failure().kind == ErrorKind::peer_gone) return std::nullopt;
    raise(request.failure());
  }

  void answer(const sharing::Message& request) {
    Failure failure;
    failure.call = "a process of the tour";
    try {
      const std::string text = act(text_of(request));
      const auto bytes = std::as_bytes(std::span(text));
      socket_.reply(request, {.kind = answer_message, .bytes = bytes}, Deadline::in(patience));
      failure.call.clear();
    } catch (const Error& error) {
      failure = error.failure();
    } catch (const std::exception& error) {
      failure.reason = error.what();
    }
    if (!failure.call.empty()) static_cast<void>(socket_.try_reply(request, failure, Deadline::in(patience)));
    if (const auto then = std::exchange(then_, {})) then();
  }

  std::string act(const std::string& request) {
    std::istringstream words(request);
    std::string task;
    words >> task;
    if (task == "begin") return "";
    if (task == "make") return make(words);
    if (task == "give") return give();
    if (task == "take") return take();
    if (task == "map") return map();
    if (task == "sum") return sum(words);
    if (task == "store") return store(words);
    if (task == "reduce") return reduce(words);
    if (task == "import-number") return import_number(words);
    if (task == "drop") return drop();
    throw std::logic_error("there is no task " + task);
  }

  std::string make(std::istringstream& words) {
    std::size_t bytes = 0;
    unsigned type = 0;
    words >> bytes >> type;
    type_ = static_cast<HandleType>(type);
    const InputFile file(rest_of(words));
    MappedRange range = new_range(bytes, {.location = gpu_.location(), .handle_types = type_});
    range.append(bytes);
    copy_bytes_to_device(driver_, range.address(), sample_of_input(file, bytes));
    memory_.push_back(std::move(range));
    return "";
  }

  std::string give() {
    const SharedPhysicalMemory memory = memory_.at(0).memory_at(0);
    auto handles = std::make_shared<std::vector<sharing::HandleOfMemory>>();
    handles->push_back({sharing::ShareableHandle::export_from(memory.memory(), type_), memory.memory().size()});
    then_ = [this, handles] { sharing::send_handles(socket_, *handles, Deadline::in(patience)); };
    return "";
  }

  // The handles come behind the answer, and are mapped when that is asked for.
  std::string take() {
    then_ = [this] { taken_ = sharing::receive_handles(socket_, Deadline::in(patience)); };
    return "";
  }

  std::string map() {
    for (const auto& each : taken_) {
      const SharedPhysicalMemory memory(each.handle.import_into(driver_, {.bytes = each.bytes}));
      MappedRange range = new_range(each.bytes, {.location = memory.properties().location});
      range.append(memory);
      memory_.push_back(std::move(range));
    }
    taken_.clear();
    return "";
  }

  std::string sum(std::istringstream& words) {
    std::size_t index = 0;
    std::uint64_t bytes = 0;
    std::uint64_t first_word = 0;
    words >> index >> bytes >> first_word;
    return std::to_string(gpu_.checksum(memory_.at(index).address().value, bytes, first_word));
  }

  std::string store(std::istringstream& words) {
    std::size_t index = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    words >> index >> offset >> bytes;
    std::vector<std::byte> piece(bytes);
    InputFile(rest_of(words)).read(offset, piece);
    copy_bytes_to_device(driver_, memory_.at(index).address(), piece);
    return "";
  }

  std::string reduce(std::istringstream& words) {
    team::SocketTeam team;
    std::size_t bytes = 0;
    words >> team.rank >> team.size >> team.session >> bytes;
    const InputFile file(rest_of(words));
    auto bootstrap = team::SocketBootstrap::join(team, Deadline::in(std::chrono::minutes(1)));
    const RankSums sums = reduce_as_rank(std::move(bootstrap), gpu_, file, bytes);
    return fmt::format("{} {} {}", sums.summed, sums.stored, sums.added);
  }

  std::string import_number(std::istringstream& words) {
    std::intptr_t number = 0;
    words >> number;
    abi::CUmemGenericAllocationHandle handle = 0;
    const abi::CUresult result = driver_.interface().cuMemImportFromShareableHandle(
        &handle, reinterpret_cast<void*>(number), abi::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result == abi::CUDA_SUCCESS) static_cast<void>(driver_.interface().cuMemRelease(handle));
    return std::to_string(static_cast<int>(result));
  }

  std::string drop() {
    for (MappedRange& each : memory_) each.close();
    memory_.clear();
    return "";
  }

  [[nodiscard]] MappedRange new_range(std::size_t bytes, const MemoryProperties& properties) const {
    return MappedRange::create(driver_, {.capacity = bytes,
                                         .memory = properties,
                                         .grants = {{gpu_.location(), AccessRights::read_write}},
                                         .chunks = ChunkPolicy::exact()});
  }

  Driver driver_;
  Gpu gpu_;
  DescriptorSocket socket_;
  std::vector<MappedRange> memory_;  // each in addresses of its own
  HandleType type_ = HandleType::posix_file_descriptor;
  std::vector<sharing::HandleOfMemory> taken_;
  std::function<void()> then_;  // to be done when the answer is on its way
};

// Whoever asks first learns why there is nobody to answer.
void refuse(DescriptorSocket& socket, const std::string& why) {
  Failure failure;
  failure.call = "a process of the tour";
  failure.reason = why;
  if (const auto request = socket.try_receive(Deadline::in(patience)))
    static_cast<void>(socket.try_reply(*request, failure, Deadline::in(patience)));
}

void work(const PartyCommand& party) {
  auto socket = DescriptorSocket::adopt(UniqueDescriptor(command::inherited_descriptor));
  std::optional<Driver> driver;
  try {
    driver = command::open_driver_at(party.place, party.options.node, emulated_machine());
    static_cast<void>(driver->device(DeviceOrdinal(party.options.device)));
  } catch (const std::exception& error) {
    return refuse(socket, error.what());
  }
  PartyProcess(*driver, party.options.device, std::move(socket)).work();
}

}  // namespace

CLI::App* add_party_command(CLI::App& application, PartyCommand& party) {
  CLI::App* command = application.add_subcommand(party_command, "A process that takes part in a stop of the tour");
  command->group("");  // not shown: no use to people
  command::add_driver_option(*command, party.place.driver);
  command->add_option("--devices", party.place.devices);
  command->add_option("--machine", party.place.machine);
  command->add_option("--nodes", party.place.nodes);
  command->add_option("--node", party.options.node);
  command->add_option("--device", party.options.device);
  return command;
}

int run_party(const PartyCommand& party) {
  try {
    work(party);
    return 0;
  } catch (const std::exception& error) {
    std::fputs(fmt::format("cuvmm tour: in another process: {}\n", error.what()).c_str(), stderr);
    return 1;
  }
}

}  // namespace cuvmm::tour
