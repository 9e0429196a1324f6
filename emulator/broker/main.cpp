// The broker of an emulated machine that processes share. The first of them starts it; it ends after the last.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <utility>

#include "emulator/broker/command_line.hpp"
#include "emulator/broker/machine_directory.hpp"
#include "emulator/broker/server.hpp"

namespace cuvmm::emulator::broker {
namespace {

void raise_limit(__rlimit_resource_t resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(resource, &limit);
}

// Ends the machine, unless somebody connects at this moment: then false.
bool ended(Server& server, MachineDirectory& directory) {
  if (!directory.try_lock()) return false;
  server.accept_all();
  if (!server.idle()) {
    directory.unlock();
    return false;
  }
  directory.remove();
  return true;
}

void serve_until_alone(Server& server, MachineDirectory& directory) {
  constexpr int at_first = 5, at_most = 200;
  int pause = at_first;  // milliseconds: whoever has the lock is about to connect, or was stopped
  while (true) {
    if (!server.idle()) {
      pause = at_first;
      server.serve(-1);
    } else if (ended(server, directory)) {
      return;
    } else {
      server.serve(pause);
      pause = std::min(2 * pause, at_most);
    }
  }
}

int run(const Task& task) {
  for (const int signal : {SIGPIPE, SIGXFSZ, SIGHUP, SIGINT, SIGQUIT}) std::signal(signal, SIG_IGN);
  raise_limit(RLIMIT_NOFILE);
  raise_limit(RLIMIT_FSIZE);
  MachineDirectory directory(task.path, memory::FileDescriptor(directory_descriptor));
  Server server(memory::FileDescriptor(listener_descriptor), task.shape, task.settings);
  serve_until_alone(server, directory);
  return 0;
}

}  // namespace
}  // namespace cuvmm::emulator::broker

int main(int count, char** words) {
  using namespace cuvmm::emulator::broker;
  constexpr int misuse = 2;
  try {
    // The process that was started is waited for by who started it, and must not be: it ends at once, and a child of it
    // goes on.
    const auto task = task_of({words + 1, words + count});
    if (!task) {
      std::fputs("This is the broker of an emulated machine; programs on the emulated driver start it.\n", stderr);
      return misuse;
    }
    if (const pid_t child = ::fork(); child != 0) return child > 0 ? 0 : no_process_left;
    return run(*task);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuvmm emulator broker: %s\n", error.what());
    return 1;
  }
}
