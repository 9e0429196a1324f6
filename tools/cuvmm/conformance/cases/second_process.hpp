// A second process within a case, and descriptors sent to and fro.
#pragma once

#include <sys/types.h>

#include <functional>

#include "conformance/cases/environment.hpp"

namespace cuvmm::conformance {

// A child that runs a function with a driver of its own and a primary context, and then waits to be killed. It must be
// started before this process makes its driver.
class SecondProcess {
 public:
  using Function = std::function<void(Environment&, int socket)>;

  SecondProcess(const Environment& environment, const Function& function);
  SecondProcess(const SecondProcess&) = delete;
  SecondProcess& operator=(const SecondProcess&) = delete;
  ~SecondProcess();

  // This process's end of the socket between the two.
  [[nodiscard]] int socket() const noexcept { return socket_; }
  // Kills the child and waits until it is gone.
  void kill();

 private:
  int socket_ = -1;
  pid_t process_ = -1;
};

void send_descriptor(int socket, int descriptor);
[[nodiscard]] int receive_descriptor(int socket);  // -1 if none comes

// The two take turns: one waits until the other passes the word.
void pass_turn(int socket);
void wait_for_turn(int socket);

void send_bytes(int socket, const void* bytes, std::size_t size);
[[nodiscard]] bool receive_bytes(int socket, void* bytes, std::size_t size);

}  // namespace cuvmm::conformance
