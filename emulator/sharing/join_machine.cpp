#include "emulator/sharing/join_machine.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "emulator/broker/command_line.hpp"
#include "emulator/broker/machine_directory.hpp"
#include "emulator/configuration_settings.hpp"
#include "emulator/sharing/broker_process.hpp"
#include "emulator/sharing/shared_memory.hpp"

namespace cuvmm::emulator::sharing {
namespace {

using memory::FileDescriptor;

// A loaded machine may take long; what hangs is told at last.
std::chrono::seconds patience_of(const Configuration& configuration) {
  return std::chrono::seconds(configuration.broker_patience);
}

rlim_t most_descriptors() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

// What else there is to say where descriptors may be what is missing.
std::string hint_at_descriptors() {
  return fmt::format("this process may have {} descriptors open, its limit RLIMIT_NOFILE; raise that (ulimit -n)",
                     most_descriptors());
}

// The same where it may be processes.
std::string hint_at_processes() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return "the system has no process left";
  return fmt::format("this user may have {} processes and threads, its limit RLIMIT_NPROC; raise that (ulimit -u)",
                     limit.rlim_cur);
}

broker::Task task_for(const Configuration& configuration, const std::string& path) {
  const Profile& profile = configuration.profile;
  return {
      path,
      {configuration.nodes, configuration.devices, configuration.memory_per_device() - profile.device_memory_reserved,
       profile.host_memory, profile.granularity, configuration.multicast_slot_count()},
      machine_settings(configuration)};
}

void set(Configuration& configuration, const GivenSetting& given) {
  for (const Setting& setting : settings())
    if (setting.name == given.name) (void)setting.set(configuration, given.value);
}

// Makes what is left open that of the machine, and refuses what is given otherwise.
void follow(Configuration& configuration, const std::string& machine_is, const std::string& path) {
  const Behaviour behaviour = configuration.profile.behaviour;  // is the process's own, whatever the profile
  for (const GivenSetting& machines : settings_in_list(machine_is, path)) {
    const auto& open = configuration.left_open;
    if (std::find(open.begin(), open.end(), machines.name) != open.end()) {
      set(configuration, machines);
    } else if (const std::string ours = machine_wide_value(configuration, machines.name); ours != machines.value) {
      throw std::invalid_argument(fmt::format(
          "emulated driver: {} is {}, but the machine '{}' was made with {}={}; ask for that, leave it out, or name "
          "another machine",
          machines.name, ours, path, machines.name, machines.value));
    }
  }
  configuration.profile.behaviour = behaviour;
  configuration.validate();
}

FileDescriptor connected(const broker::MachineDirectory& directory, std::chrono::steady_clock::time_point deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  directory.short_path(broker::socket_name).copy(address.sun_path, sizeof address.sun_path - 1);
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw std::system_error(errno, std::generic_category(), "cannot connect to an emulated machine");
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == ECONNREFUSED || errno == ENOENT) return {};  // nobody listens
    if (errno == EINTR) continue;
    if (errno != EAGAIN)
      throw std::system_error(errno, std::generic_category(),
                              fmt::format("cannot connect to the emulated machine '{}'", directory.path()));
    if (std::chrono::steady_clock::now() > deadline)
      throw std::system_error(
          ETIMEDOUT, std::generic_category(),
          fmt::format("the broker of the emulated machine '{}' takes in no more processes", directory.path()));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // its queue is full
  }
  return socket;
}

std::string path_of(const std::string& machine) {
  return machine.starts_with('/') ? machine : broker::machines_of_user() + "/" + machine;
}

void refuse_unless_built_in(const Configuration& configuration) {
  const auto built_in = find_profile(configuration.profile.name);
  if (!built_in || built_in->granularity != configuration.profile.granularity ||
      built_in->host_memory != configuration.profile.host_memory ||
      built_in->device_memory_reserved != configuration.profile.device_memory_reserved ||
      built_in->attributes != configuration.profile.attributes ||
      built_in->multicast_granularity != configuration.profile.multicast_granularity ||
      built_in->multicast_recommended != configuration.profile.multicast_recommended)
    throw std::invalid_argument(
        fmt::format("emulated driver: the profile '{}' is no built-in one, or was changed; processes can share "
                    "machines with a built-in profile alone: leave machine empty, or take such a profile",
                    configuration.profile.name));
}

// For who has the lock, where nobody listens.
FileDescriptor connection_to_new_broker(const Configuration& configuration, broker::MachineDirectory& directory,
                                        std::chrono::steady_clock::time_point deadline) {
  constexpr rlim_t few_descriptors = 32;  // with fewer a broker may not come up
  try {
    directory.make_channels(configuration.imex_channel_count());
    start_broker(directory, task_for(configuration, directory.path()), deadline);
    if (FileDescriptor socket = connected(directory, deadline)) return socket;
    throw std::system_error(
        ECONNREFUSED, std::generic_category(),
        fmt::format("the broker of the emulated machine '{}', the program '{}', ended at once{}{}", directory.path(),
                    broker_program(), most_descriptors() < few_descriptors ? "; " : "",
                    most_descriptors() < few_descriptors ? hint_at_descriptors() : ""));
  } catch (...) {
    directory.remove();  // a broker that came up all the same ends once its directory is gone
    throw;
  }
}

// Under the lock somebody listens, or nobody does and nobody else begins to.
FileDescriptor connection_to(const Configuration& configuration, const std::string& path, FileDescriptor& channels) {
  const auto deadline = std::chrono::steady_clock::now() + patience_of(configuration);
  broker::MachineDirectory directory = broker::MachineDirectory::open_locked(path, deadline);
  FileDescriptor socket;
  try {
    socket = connected(directory, deadline);
  } catch (...) {
    if (!directory.has_socket()) directory.remove();
    throw;
  }
  if (!socket) socket = connection_to_new_broker(configuration, directory, deadline);
  channels = FileDescriptor(
      ::openat(directory.descriptor(), broker::channels_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  directory.unlock();
  return socket;
}

}  // namespace

std::unique_ptr<memory::PhysicalMemory> join_machine(Configuration& configuration) {
  refuse_unless_built_in(configuration);
  const std::string path = path_of(configuration.machine);
  FileDescriptor channels;
  FileDescriptor socket;
  try {
    socket = connection_to(configuration, path, channels);
  } catch (const std::system_error& error) {
    const int why = error.code().value();
    if (why != EMFILE && why != EAGAIN) throw;
    throw std::system_error(
        error.code(), fmt::format("{}; {}", error.what(), why == EMFILE ? hint_at_descriptors() : hint_at_processes()));
  }
  auto connection = std::make_unique<Connection>(std::move(socket), path, patience_of(configuration));
  const broker::Reply reply = connection->ask(broker::Hello{configuration.node});
  if (const auto* const refused = std::get_if<broker::Refused>(&reply)) {
    if (refused->why == broker::Refusal::no_such_node)
      throw std::invalid_argument(
          fmt::format("emulated driver: node is {}, but the machine '{}' was made with nodes={}; take one below that",
                      configuration.node, path, refused->detail));
    throw std::system_error(EMFILE, std::generic_category(),
                            fmt::format("the emulated machine '{}' has {} processes and can take in no more: raise "
                                        "RLIMIT_NOFILE for whoever starts it",
                                        path, refused->detail));
  }
  const auto& welcome = std::get<broker::Welcome>(reply);
  follow(configuration, welcome.settings, path);
  return std::make_unique<SharedMemory>(configuration, std::move(connection), welcome, std::move(channels));
}

}  // namespace cuvmm::emulator::sharing
